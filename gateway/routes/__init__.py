"""The HTTP resources, one file per noun. A resource authenticates, asks the pure files, and writes the answer."""
