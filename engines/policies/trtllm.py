"""`trtllm-serve`'s flags. Its help was never recorded, so only flags that are known to be harmless pass. Pure data.

Spelling: click: whole names and `--flag=value`, words joined by `_` (judged with `-` alike).
"""

from engines.policies.reasons import CARDS, CODE, EXITS, NETWORK, OURS, READS, group
from engines.policies.table import FlagTable

TRTLLM = FlagTable(
    refused={
        **group(OURS, "--host --port --backend --max-batch-size --max-seq-len --served-model-name"),
        **group(CARDS, "--tp-size --pp-size --cp-size --gpus-per-node --cluster-size"),
        **group(READS, "--tokenizer --extra-llm-api-options --config --chat-template --log-file --media-io-kwargs"),
        **group(NETWORK, "--metadata-server-config-file --server-role --disagg-cluster-uri --revision"),
        **group(CODE, "--trust-remote-code --custom-module-dirs"),
        **group(EXITS, "--help -h --version"),
    },
    allowed=frozenset(
        """--max-num-tokens --max-beam-width --kv-cache-free-gpu-memory-fraction --free-gpu-memory-fraction --ep-size
        --reasoning-parser --tool-parser --num-postprocess-workers --fail-fast-on-attention-window-too-large
        --enable-chunked-prefill --log-level --moe-expert-parallel-size --kv-cache-dtype""".split()  # noqa: SIM905 - words read as words
    ),  # fmt: skip
    underscores=True,
    strict=True,
)
