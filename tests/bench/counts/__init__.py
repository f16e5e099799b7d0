"""What a request costs, as counts that a busy machine does not change: `python -m tests.bench.counts`."""
