"""A simulated engine: OpenAI-compatible, no weights, settable timing and failures. `python -m engines.sim`."""
