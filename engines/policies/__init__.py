"""What each engine's flags may do: one table per engine, judged by `engines.policy`."""
