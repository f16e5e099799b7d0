"""What one dialect's request and answer are in another's words. Pure: bytes in, bytes out, no network."""
