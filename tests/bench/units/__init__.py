"""What driving many units costs: `python -m tests.bench.units` (root; boots a host with the package)."""
