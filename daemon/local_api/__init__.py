"""The daemon's local API on its unix socket: `core/api.py` as a Falcon application."""
