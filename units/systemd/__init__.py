"""The systemd back end: unit files in its directory, orders and signals over the system bus, logs from the journal."""
