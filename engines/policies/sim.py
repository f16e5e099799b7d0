"""The simulated engine's flags. Python's argparse reads them: unique prefixes and `--flag=value` count."""

from engines.policies.reasons import CARDS, OURS, group
from engines.policies.table import FlagTable

SIM = FlagTable(
    refused={
        **group(OURS, "--host --port --key-file --model"),
        **group(CARDS, "--nnodes --node-rank --master-addr --master-port --own-addr"),
        "--slots": "llmgw sets it from maxConcurrency",
        "--context-length": "llmgw sets it from contextLength",
        **dict.fromkeys(("-h", "--help"), "it prints something and ends, so the runtime would never serve"),
    },
    allowed=frozenset({"--load-time", "--first-token-s"}),
    prefixes=True,
)
