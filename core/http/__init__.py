"""The HTTP server that gateway, gates and the daemon's socket share, and the relay to upstreams."""
