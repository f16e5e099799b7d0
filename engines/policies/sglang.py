"""SGLang's flags (help of 0.5.23 read line by line). Pure data.

Spelling: plain argparse: unique prefixes and `--flag=value`. Some switches that look like tuning are not:
`--enable-custom-logit-processor` unpickles what a request brings, `--delete-ckpt-after-loading` removes the weights.
"""

from engines.policies.reasons import CARDS, CODE, EXITS, NETWORK, OURS, READS, ROUTES, SECRET, UNTRUSTED, WRITES, group
from engines.policies.table import FlagTable

_JSON = "its value may name files, classes or addresses"

_REFUSED: dict[str, str] = {
    **group(OURS, "--model-path --model --served-model-name --host --port --context-length --max-running-requests"),
    **group(OURS, "--is-embedding --device --enable-lora --lora-paths --max-loras-per-batch --max-lora-rank"),
    **group(OURS, "--enable-metrics"),
    **group("llmgw decides how many adapters are loaded (maxLoadedAdapters)", "--max-loaded-loras"),
    **group(SECRET, "--api-key --admin-api-key --ssl-keyfile-password"),
    **group(
        CARDS, "--tp-size --tensor-parallel-size --tp --pp-size --pipeline-parallel-size --pp --nnodes --node-rank"
    ),
    **group(CARDS, "--dist-init-addr --nccl-init-addr --nccl-port --dp-size --data-parallel-size --dp"),
    **group(CARDS, "--attn-dp-size --attention-data-parallel-size --attn-cp-size --attention-context-parallel-size"),
    **group(CARDS, "--moe-dp-size --moe-data-parallel-size --dwdp-size --base-gpu-id --gpu-id-step --use-ray"),
    **group(CARDS, "--elastic-ep-backend --elastic-ep-join-mode --elastic-ep-join-rank-offset --max-ep-size"),
    **group(CARDS, "--elastic-ep-initial-size --gated-launch-port"),
    **group(READS, "--tokenizer-path --quantization-param-path --modelopt-checkpoint-restore-path --chat-template"),
    **group(READS, "--completion-template --config --ssl-keyfile --ssl-certfile --ssl-ca-certs --uno-lora-path"),
    **group(READS, "--speculative-draft-model-path --speculative-draft-model --speculative-token-map"),
    **group(READS, "--speculative-dspark-sps-table-path --speculative-dspark-confidence-sts-path"),
    **group(READS, "--speculative-ngram-external-corpus-path --lmcache-config-file --flexkv-config-file"),
    **group(READS, "--kt-weight-path --pdmux-config-path --decrypted-config-file --decrypted-draft-config-file"),
    **group(READS, "--debug-tensor-dump-input-file --init-expert-location --model-checksum --dllm-algorithm-config"),
    **group(READS, "--tool-server --speculative-adaptive-config --deepep-config --cuda-graph-config"),
    **group(WRITES, "--modelopt-checkpoint-save-path --modelopt-export-path --file-storage-path --crash-dump-folder"),
    **group(WRITES, "--export-metrics-to-file --export-metrics-to-file-dir --debug-tensor-dump-output-folder"),
    **group(WRITES, "--log-requests-target --spec-trace-dir --download-dir --ple-offload-dir --ple-offload-backend"),
    **group(WRITES, "--quantize-and-serve --msprobe-dump-config --debug-tensor-dump-layers"),
    **group("it removes the model's files once they are loaded", "--delete-ckpt-after-loading"),
    **group(NETWORK, "--revision --speculative-draft-model-revision --encoder-urls --encoder-register-urls"),
    **group(NETWORK, "--encoder-bootstrap-port --encoder-transfer-backend --kv-events-config --load-publish-endpoint"),
    **group(NETWORK, "--otlp-traces-endpoint --decoupled-spec-bind-endpoint --decoupled-spec-connect-endpoints"),
    **group(NETWORK, "--disaggregation-bootstrap-port --disaggregation-mode --disaggregation-transfer-backend"),
    **group(NETWORK, "--disaggregation-ib-device --hicache-storage-backend --hicache-storage-backend-extra-config"),
    **group(NETWORK, "--engine-info-bootstrap-port --modelexpress-config --weight-cache-socket --weight-cache-mode"),
    **group(NETWORK, "--remote-instance-weight-loader-seed-instance-ip --remote-instance-weight-loader-backend"),
    **group(NETWORK, "--remote-instance-weight-loader-seed-instance-service-port"),
    **group(NETWORK, "--remote-instance-weight-loader-send-weights-group-ports --enable-mm-global-cache"),
    **group(NETWORK, "--remote-instance-weight-loader-start-seed-via-transfer-engine --mm-global-cache-backend"),
    **group(NETWORK, "--checkpoint-engine-wait-weights-before-ready --enable-unified-cache-external-linker"),
    **group(NETWORK, "--unified-cache-external-linker-backend --unified-cache-external-linker-config"),
    **group(NETWORK, "--enable-elastic-expert-backup --mooncake-ib-device --enable-lmcache --enable-flexkv"),
    **group(CODE, "--trust-remote-code --custom-weight-loader --forward-hooks --warmups --sidecar --sidecar-args"),
    **group(CODE, "--model-config-parser --radix-cache-backend"),
    **group(UNTRUSTED, "--enable-custom-logit-processor --trust-request-chat-template --trust-mm-content-hashes"),
    **group(ROUTES, "--fastapi-root-path --smg-grpc-mode --grpc-mode --grpc-port --smg-http-sidecar-port"),
    **group(ROUTES, "--grpc-http-sidecar-port --enable-http2 --enable-http-worker-reuseport --enable-ssl-refresh"),
    **group(ROUTES, "--enable-pd-role-switch --encoder-only --tokenizer-metrics-custom-labels-header"),
    **group(_JSON, "--model-loader-extra-config --json-model-override-args --hisparse-config --mm-process-config"),
    **group(_JSON, "--hierarchical-sparse-attention-extra-config --radix-eviction-policy-config --watermark-config"),
    **group(EXITS, "-h --help --version"),
}

_ALLOWED = frozenset(
    """--tokenizer-mode --tokenizer-backend --tokenizer-worker-num --load-format --model-impl --language-only
    --language-model-only --lora-target-modules --lora-eviction-policy --lora-backend --max-lora-chunk-size
    --experts-shared-outer-loras --no-experts-shared-outer-loras --lora-use-virtual-experts
    --lora-strict-loading --no-lora-strict-loading --lora-drain-wait-threshold --enable-lora-overlap-loading
    --startup-weight-load-mode --load-balance-method --load-snapshot-publish-interval
    --speculative-draft-load-format --speculative-draft-model-quantization --mamba-max-states-per-path
    --hf-chat-template-name --allowed-media-domains --media-url-max-file-size-mb --prompt-tokens-buckets
    --enable-metrics-for-all-schedulers --log-level --log-requests --modelopt-quant --quantization
    --generation-tokens-buckets --disable-fast-image-processor --enable-cache-report --context-bucket
    --disable-prefill-cuda-graph --elastic-ep-scale-timeout --disable-outlines-disk-cache
    --speculative-moe-runner-backend --decoupled-spec-rank --decoupled-spec-role
    --bucket-inter-token-latency --bucket-time-to-first-token --deepep-dispatcher-output-dtype
    --default-chat-template-kwargs --disable-custom-all-reduce --dllm-algorithm --hicache-host-memory-fraction
    --hicache-host-memory-mode --incremental-streaming-output --kt-max-deferred-experts-per-token
    --prefill-delayer-token-usage-low-watermark --radix-eviction-policy --return-output-ids
    --speculative-adaptive --tbo-token-distribution-threshold --tokenizer-metrics-allowed-custom-labels
    --weight-loader-drop-cache-after-load""".split()  # noqa: SIM905 - words read as words
)  # fmt: skip

SGLANG = FlagTable(
    refused=_REFUSED,
    allowed=_ALLOWED,
    patterns=(
        (r"--remote-instance-.*", NETWORK),
        (r"--disaggregation-.*-(port|endpoint|addr)", NETWORK),
        (r"--.*-(loader|hook|hooks|plugin|cls)", CODE),
    ),
    underscores=True,
    prefixes=True,
    environment={"SGLANG_API_KEY": "--api-key"},
)
