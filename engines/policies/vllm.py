"""`vllm serve`'s flags (help of 0.32.0 read line by line). Pure data.

Spelling: argparse with unique prefixes and `--flag=value`; `_` is read as `-`; `--flag.key value` sets one key of a
JSON value, also after a prefix; `-O3` sets the optimization level. The big JSON values (`--compilation-config` and its
like) hold paths, classes and addresses beside harmless switches, so they are refused as a whole.
"""

from engines.policies.reasons import CARDS, CODE, EXITS, NETWORK, OURS, READS, ROUTES, SECRET, UNTRUSTED, WRITES, group
from engines.policies.table import FlagTable

_JSON = "its value may name files, classes or addresses"
_METRICS = "llmgw reads the metrics"

_REFUSED: dict[str, str] = {
    **group(OURS, "--host --port --uds --model --served-model-name --max-model-len --max-num-seqs --runner --task"),
    **group(OURS, "--enable-lora --no-enable-lora --lora-modules --max-loras --max-lora-rank --default-mm-loras"),
    **group(OURS, "--max-cpu-loras"),
    **group(SECRET, "--api-key --hf-token"),
    **group(CARDS, "--tensor-parallel-size -tp --pipeline-parallel-size -pp --nnodes -n --node-rank -r --headless"),
    **group(CARDS, "--master-addr --master-port --distributed-executor-backend --device-ids --worker-use-ray"),
    **group(CARDS, "--prefill-context-parallel-size -pcp --data-parallel-size -dp --data-parallel-size-local -dpl"),
    **group(CARDS, "--data-parallel-start-rank -dpr --data-parallel-rank -dpn --data-parallel-address -dpa"),
    **group(CARDS, "--data-parallel-rpc-port -dpp --data-parallel-backend -dpb --data-parallel-external-lb -dpe"),
    **group(CARDS, "--data-parallel-hybrid-lb -dph --data-parallel-multi-port-external-lb -dpm"),
    **group(CARDS, "--no-data-parallel-external-lb --no-data-parallel-hybrid-lb --data-parallel-supervisor-port"),
    **group(CARDS, "--elastic-ep-max-dp-size --enable-elastic-ep --device"),
    **group(READS, "--config --chat-template --hf-config-path --tokenizer --generation-config --log-config-file"),
    **group(READS, "--allowed-local-media-path --ssl-keyfile --ssl-certfile --ssl-ca-certs --spec-model"),
    **group(READS, "--mm-encoder-fp8-scale-path"),
    **group(WRITES, "--download-dir --mm-encoder-fp8-scale-save-path --cpu-offload-params --offload-params"),
    **group(NETWORK, "--revision --code-revision --tokenizer-revision --otlp-traces-endpoint --tool-server"),
    **group(CODE, "--trust-remote-code --middleware --tool-parser-plugin --reasoning-parser-plugin --worker-cls"),
    **group(CODE, "--io-processor-plugin --logits-processors --worker-extension-cls --scheduler-cls"),
    **group(CODE, "--model-class-overrides --logging-config --ray-workers-use-nsight"),
    **group(UNTRUSTED, "--trust-request-chat-template --trust-request-mm-kwargs --enable-prompt-embeds"),
    **group(UNTRUSTED, "--enable-mm-embeds"),
    **group(ROUTES, "--root-path --grpc --grpc-port --enable-scale-out --tokens-only --enable-ssl-refresh"),
    **group(_METRICS, "--disable-log-stats"),
    **group(_JSON, "--compilation-config -cc --speculative-config -sc --kv-transfer-config --kv-events-config"),
    **group(_JSON, "--ec-transfer-config --ec-manager-config --engram-config --additional-config --profiler-config"),
    **group(_JSON, "--weight-transfer-config --aux-output-config --diffusion-config -dc --hf-overrides"),
    **group(_JSON, "--fault-tolerance-config --model-loader-extra-config --structured-outputs-config"),
    **group(_JSON, "--quantization-config --watermark-config --reasoning-config --mm-processor-kwargs"),
    **group(_JSON, "--media-io-kwargs"),
    **group(EXITS, "-h --help -v --version"),
}

_ALLOWED = frozenset(
    """--tokenizer-mode --config-format --model-impl --load-format --safetensors-load-strategy --use-tqdm-on-load
    --no-use-tqdm-on-load --pt-load-map-location --override-generation-config --pooler-config --attention-config
    --kernel-config --eplb-config --language-model-only --no-language-model-only --lora-dtype --lora-target-modules
    --specialize-active-lora --no-specialize-active-lora --enable-tower-connector-lora
    --no-enable-tower-connector-lora --enable-mixed-moe-lora-format --no-enable-mixed-moe-lora-format
    --max-lora-cls-labels --enable-server-load-tracking --no-enable-server-load-tracking
    --exclude-tools-when-tool-choice-none --no-exclude-tools-when-tool-choice-none --numa-bind --no-numa-bind
    --numa-bind-cpus --numa-bind-nodes --no-trust-remote-code --no-trust-request-chat-template
    --no-trust-request-mm-kwargs --no-enable-prompt-embeds --no-enable-mm-embeds --no-enable-ssl-refresh
    --allowed-media-domains --max-num-batched-tokens --kv-cache-metrics --reasoning-parser --tool-call-parser
    --scheduling-policy --tool-strict-level --max-logprobs --seed --quantization
    --watermark --cohere-is-reasoning-model --no-cohere-is-reasoning-model --custom-histogram-buckets
    --dbo-decode-token-threshold --dbo-prefill-token-threshold --default-chat-template-kwargs
    --disable-access-log-for-endpoints --disable-custom-all-reduce --no-disable-custom-all-reduce
    --long-prefill-token-threshold --long-prefill-token-threshold-adaptive
    --no-long-prefill-token-threshold-adaptive --mm-encoder-fp8-scale-save-margin
    --return-tokens-as-token-ids --no-return-tokens-as-token-ids""".split()  # noqa: SIM905 - words read as words
)  # fmt: skip

_SHORT = frozenset(["-q", "-asc", "-ac", "-dcp", "-ep", "-O", "-O0", "-O1", "-O2", "-O3"])

VLLM = FlagTable(
    refused=_REFUSED,
    allowed=_ALLOWED,
    short=_SHORT,
    patterns=((r"--(no-)?data-parallel-.*", CARDS), (r"--.*-(cls|class|plugin)", CODE)),
    underscores=True,
    prefixes=True,
    dotted=True,
    environment={
        "VLLM_API_KEY": "--api-key",
        # Read where no flag sets the size: by it the engine would wait for others.
        "VLLM_DP_SIZE": "--data-parallel-size",
        "VLLM_DP_RANK": "--data-parallel-rank",
        "VLLM_DP_RANK_LOCAL": "--data-parallel-rank",
    },
)
