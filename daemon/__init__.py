"""The root daemon: owns this machine's runtimes. Decides what should run, drives units, tells the gateway."""
