"""The page for a person who opens the gateway's port in a browser."""
