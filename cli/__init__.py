"""The `llmgw` command: one file per noun, each thin over the daemon's socket or over a pure plan beside it."""
