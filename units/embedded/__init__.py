"""The embedded supervisor: a small process that runs generated unit files where systemd is not PID 1."""
