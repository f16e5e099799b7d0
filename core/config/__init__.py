"""The config file: types, loading, checking, writing."""
