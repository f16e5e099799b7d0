"""The simulated engine's flags. Python's argparse reads them: unique prefixes and `--flag=value` count."""

from engines.policies.table import FlagTable

_OURS = "llmgw sets it itself"

SIM = FlagTable(
    refused={
        **dict.fromkeys(("--host", "--port", "--key-file", "--model"), _OURS),
        "--slots": "llmgw sets it from maxConcurrency",
        "--context-length": "llmgw sets it from contextLength",
        **dict.fromkeys(("-h", "--help"), "it prints something and ends, so the runtime would never serve"),
    },
    allowed=frozenset({"--load-time", "--first-token-s"}),
    prefixes=True,
)
