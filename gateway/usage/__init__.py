"""Metering: what requests cost in tokens, told by engines or estimated, and handed to the daemon's ledger."""
