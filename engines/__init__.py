"""Adapters, builds and weights of inference engines. Turns a runtime's spec into a command; starts nothing itself."""
