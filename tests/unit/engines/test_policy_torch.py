"""What may be added to vLLM and SGLang: tables, and a search for a list that passes and still reaches a refused flag.

The engine's parser is modelled from its recorded help (`parser_model`); whatever the policy accepts is given to it.
"""

from collections.abc import Mapping

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from engines.policies.sglang import SGLANG
from engines.policies.table import FlagTable
from engines.policies.vllm import VLLM
from engines.policy import check_args, check_env, find_flag
from tests.unit.engines.parser_model import Rejected, flags_seen, names_of

TABLES: Mapping[str, FlagTable] = {"vllm": VLLM, "sglang": SGLANG}

SEVERAL_SERVERS = {"vllm": ("--api-server-count", "-asc"), "sglang": ("--tokenizer-worker-num",)}

REFUSED_VLLM = [
    # what llmgw sets itself, in every spelling
    "--host", "--host=0.0.0.0", "--hos", "--HOST", "--Host=::", "--port", "--port=1", "--por", "--uds", "--uds=/x",
    "--model", "--model=/etc", "--mode", "--served-model-name", "--served_model_name=x", "--served-model", "--serv",
    "--served_model", "--max-model-len", "--max_model_len=1", "--max-model", "--max-num-seqs", "--max_num_seqs",
    "--runner", "--runner=pooling", "--runn", "--enable-lora", "--enable_lora", "--no-enable-lora", "--lora-modules",
    "--lora-modules=x=/etc", "--lora_modules", "--lora-mod", "--max-loras", "--max-lora-rank", "--max-cpu-loras",
    "--default-mm-loras",
    # cards and nodes
    "-tp", "-tp=8", "--tensor-parallel-size", "--tensor-parallel-size=8", "--tensor_parallel_size", "--tensor", "-pp",
    "--pipeline-parallel-size", "--pipe", "--nnodes", "--nnode", "-n", "-n=2", "-n2", "-r", "-r1", "--node-rank",
    "--headless", "--head", "--master-addr", "--master_addr=10.0.0.1", "--master-port",
    "--distributed-executor-backend", "--distributed-executor-backend=ray", "--device-ids", "--dev", "-dp", "-dp2",
    "-dpa", "-dpn", "-dpp", "-dpb", "--data-parallel-size", "--data-parallel-address", "--data-parallel-rank",
    "--data_parallel_rank=1", "--data", "--prefill-context-parallel-size", "-pcp", "--data-parallel-something-new",
    "-dpe", "-dph", "-dpm", "-dpl", "-dpr",
    # secrets
    "--api-key", "--api-key=sk", "--api_key", "--api-k", "--hf-token", "--hf_token=x", "--hf-tok",
    # files
    "--config", "--config=/etc/x.yaml", "--conf", "--chat-template", "--chat_template=/x", "--chat-templ",
    "--tokenizer", "--tokenizer=/x", "--hf-config-path", "--hf-conf", "--generation-config", "--log-config-file",
    "--log-conf", "--allowed-local-media-path", "--allowed-local-media-path=/", "--allowed_local_media_path",
    "--allowed-local", "--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--download-dir", "--download-dir=/",
    "--down", "--mm-encoder-fp8-scale-path", "--mm-encoder-fp8-scale-save-path", "--spec-model",
    # network and code
    "--revision", "--rev", "--code-revision", "--tokenizer-revision", "--otlp-traces-endpoint", "--otlp",
    "--tool-server", "--trust-remote-code", "--trust_remote_code", "--trust-remote-code=true", "--trust",
    "--trust-remote", "--middleware", "--middleware=os.system", "--middle", "--tool-parser-plugin", "--tool-parser",
    "--reasoning-parser-plugin", "--reasoning-parser-", "--io-processor-plugin", "--logits-processors", "--logits",
    "--worker-cls", "--worker_cls", "--worker-extension-cls", "--work", "--scheduler-cls", "--model-class-overrides",
    "--logging-config", "--some-new-cls", "--some-plugin", "--kv-class", "--ray-workers-use-nsight",
    # what requests could bring
    "--trust-request-chat-template", "--trust-request-mm-kwargs", "--enable-prompt-embeds", "--enable-mm-embeds",
    # routes and metrics
    "--root-path", "--root", "--grpc", "--grpc-port", "--disable-log-stats", "--disable-log", "--tokens-only",
    # JSON values, whole and by key
    "--compilation-config", "-cc", "-cc.mode=3", "-cc.cache_dir", "--compilation-config.cache_dir",
    "--compilation_config.cache_dir=/x", "--compil.debug_dump_path=/x", "--speculative-config", "-sc", "-sc.model=x",
    "--speculative-config.model", "--kv-transfer-config", "--kv-transfer-config.kv_connector_module_path=x",
    "--kv-transfer.kv_connector=x", "--kv-trans.x+", "--kv-events-config", "--kv-events-config.endpoint=tcp://*:1",
    "--profiler-config", "--profiler-config.torch_profiler_dir=/x", "--additional-config", "--hf-overrides",
    "--hf-overrides.x", "--model-loader-extra-config", "--ec-transfer-config", "--logging-config.version=1", "-dc",
    "--weight-transfer-config", "--structured-outputs-config", "--host.x=1", "--api-key.x=1",
    # prints and ends
    "-h", "--help", "--help=all", "--hel", "-v", "--version",
    # no words
    "a\x00b", "--x\n--host", "--x\ud800", "-", "--", "\x1b[2J", "x" * 40_000,
]  # fmt: skip

ALLOWED_VLLM = [
    ["--gpu-memory-utilization", "0.9"], ["--gpu-memory-utilization=0.9"], ["--gpu_memory_utilization", "0.9"],
    ["--enforce-eager"], ["--enable-prefix-caching"], ["--no-enable-prefix-caching"], ["--kv-cache-dtype", "fp8"],
    ["--quantization", "awq"], ["-q", "awq"], ["-q=awq"], ["--quantization=fp8"], ["--max-num-batched-tokens", "8192"],
    ["--dtype", "bfloat16"], ["--seed", "-1"], ["--swap-space", "4"], ["--block-size", "16"], ["-O3"], ["-O", "3"],
    ["-O=2"], ["--optimization-level", "3"], ["--enable-auto-tool-choice"], ["--tool-call-parser", "hermes"],
    ["--reasoning-parser", "qwen3"], ["--limit-mm-per-prompt", '{"image": 2}'], ["--limit-mm-per-prompt.image", "2"],
    ["--override-generation-config", "{}"], ["--override-generation-config.temperature=0.2"], ["-ac.backend", "FLASH"],
    ["--attention-backend", "FLASHINFER"], ["--enable-expert-parallel"], ["-ep"],
    ["--decode-context-parallel-size", "2"], ["-dcp", "2"], ["--async-scheduling"], ["--stream-interval", "4"],
    ["--performance-mode", "throughput"], ["--max-logprobs", "20"], ["--tokenizer-mode", "auto"],
    ["--load-format", "safetensors"], ["--cpu-offload-gb", "8"], ["--kv-offloading-size", "16"],
    ["--enable-chunked-prefill"], ["--scheduling-policy", "priority"], ["--numa-bind"],
    ["--disable-custom-all-reduce"], ["--enable-sleep-mode"], ["--no-trust-remote-code"], ["--some-new-tuning", "1"],
    [], ["--default-chat-template-kwargs", '{"enable_thinking": false}'], ["--return-tokens-as-token-ids"], [""],
]  # fmt: skip

REFUSED_SGLANG = [
    "--model-path", "--model-path=/etc", "--model", "--model-pa", "--mode", "--served-model-name", "--served", "--host",
    "--host=0.0.0.0", "--hos", "--HOST", "--port", "--por", "--context-length", "--context-len", "--is-embedding",
    "--max-running-requests", "--max-running", "--device", "--device=cuda", "--devic", "--enable-lora", "--lora-paths",
    "--max-loaded-loras", "--max-loaded",
    "--lora-paths=x=/etc", "--lora-pa", "--max-loras-per-batch", "--max-loras", "--max-lora-rank", "--enable-metrics",
    "--api-key", "--api-key=sk", "--api_key", "--api", "--admin-api-key", "--admin-api-key=sk", "--admin",
    "--ssl-keyfile-password", "--tp-size", "--tp-size=8", "--tp", "--tensor-parallel-size", "--tensor-par", "--pp-size",
    "--pp", "--pipeline-parallel-size", "--nnodes", "--nno", "--node-rank", "--node", "--dist-init-addr",
    "--dist-init-addr=10.0.0.1:1", "--dist-init", "--nccl-init-addr", "--nccl-port", "--nccl", "--dp-size", "--dp",
    "--data-parallel-size", "--attn-dp-size", "--attn-cp-size", "--moe-dp-size", "--base-gpu-id", "--base",
    "--gpu-id-step", "--use-ray", "--elastic-ep-backend", "--gated-launch-port", "--max-ep-size",
    "--tokenizer-path", "--tokenizer-path=/x", "--tokenizer-pa", "--quantization-param-path", "--chat-template",
    "--chat-template=/x", "--chat", "--completion-template", "--config", "--config=/x.yaml", "--conf", "--confi",
    "--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--uno-lora-path", "--speculative-draft-model-path",
    "--speculative-draft-model-path=/x", "--speculative-draft-model", "--speculative-draft-mod",
    "--speculative-token-map", "--speculative-ngram-external-corpus-path", "--lmcache-config-file",
    "--flexkv-config-file", "--kt-weight-path", "--pdmux-config-path", "--decrypted-config-file",
    "--debug-tensor-dump-input-file", "--init-expert-location", "--model-checksum", "--dllm-algorithm-config",
    "--tool-server", "--modelopt-checkpoint-save-path", "--modelopt-export-path", "--file-storage-path",
    "--file-storage-path=/", "--file", "--crash-dump-folder", "--crash", "--export-metrics-to-file",
    "--export-metrics-to-file-dir", "--export", "--debug-tensor-dump-output-folder", "--log-requests-target",
    "--log-requests-t", "--spec-trace-dir", "--download-dir", "--ple-offload-dir", "--delete-ckpt-after-loading",
    "--delete", "--delete_ckpt_after_loading", "--revision", "--encoder-urls", "--encoder-register-urls",
    "--kv-events-config", "--kv-events-config={}", "--kv-ev", "--load-publish-endpoint", "--otlp-traces-endpoint",
    "--decoupled-spec-bind-endpoint", "--disaggregation-bootstrap-port", "--disaggregation-mode",
    "--hicache-storage-backend", "--hicache-storage-backend=file", "--hicache-storage-backend-extra-config",
    "--remote-instance-weight-loader-seed-instance-ip", "--remote-instance-something-new", "--weight-cache-socket",
    "--checkpoint-engine-wait-weights-before-ready", "--enable-unified-cache-external-linker", "--enable-lmcache",
    "--trust-remote-code", "--trust-remote", "--trust", "--trust_remote_code", "--custom-weight-loader",
    "--custom-w", "--forward-hooks", "--forward-hooks=[]", "--forw", "--warmups", "--warm", "--sidecar",
    "--sidecar=os", "--sidecar-args", "--enable-custom-logit-processor", "--enable-custom-logit",
    "--trust-request-chat-template", "--trust-mm-content-hashes", "--fastapi-root-path", "--grpc-mode",
    "--smg-grpc-mode", "--grpc-port", "--enable-http2", "--enable-http", "--json-model-override-args",
    "--model-loader-extra-config", "--mm-process-config", "-h", "--help", "--hel", "--version", "-t", "-x", "-",
    "--", "a\x00b", "--x\n--host", "--x\ud800",
]  # fmt: skip

ALLOWED_SGLANG = [
    ["--mem-fraction-static", "0.8"], ["--mem-fraction-static=0.8"], ["--schedule-policy", "lpm"],
    ["--chunked-prefill-size", "4096"], ["--chunked-prefill-size", "-1"], ["--attention-backend", "flashinfer"],
    ["--sampling-backend", "pytorch"], ["--grammar-backend", "xgrammar"], ["--disable-radix-cache"],
    ["--page-size", "16"], ["--quantization", "fp8"], ["--kv-cache-dtype", "fp8_e5m2"], ["--enable-torch-compile"],
    ["--dtype", "bfloat16"], ["--reasoning-parser", "qwen3"], ["--tool-call-parser", "auto"],
    ["--enable-dp-attention"], ["--ep-size", "8"], ["--disable-cuda-graph"],
    ["--cuda-graph-backend-decode", "disabled"], ["--random-seed", "1"], ["--log-level", "info"],
    ["--stream-interval", "2"], ["--watchdog-timeout", "300"], ["--enable-mixed-chunk"],
    ["--max-total-tokens", "65536"], ["--speculative-algorithm", "EAGLE"], ["--speculative-num-steps", "3"],
    ["--tokenizer-mode", "auto"], ["--enable-hierarchical-cache"], ["--hicache-ratio", "2"],
    ["--disable-overlap-schedule"], ["--sleep-on-idle"], ["--load-format", "safetensors"], ["--enable-cache-report"],
    ["--disable-custom-all-reduce"], ["--some-new-tuning"], ["--moe-a2a-backend", "deepep"],
    ["--cpu-offload-gb", "4"], ["--numa-node", "0"], [],
]  # fmt: skip

REFUSED_ENV = [
    "VLLM_API_KEY", "VLLM_PLUGINS", "VLLM_HOST_IP", "VLLM_PORT", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "PYTHONPATH",
    "VLLM_LOGGING_CONFIG_PATH", "VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_USE_MODELSCOPE",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_TORCH_PROFILER_DIR", "SGLANG_HOST_IP", "SGLANG_API_KEY", "HF_TOKEN",
    "HF_HUB_OFFLINE", "HF_HOME", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "PATH", "SGLANG_TORCH_PROFILER_DIR",
    "VLLM_USE_RUST_FRONTEND", "VLLM_USE_RUST_BENCH", "SGLANG_RUST_SERVER",
]  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "word"),
    [*(("vllm", word) for word in REFUSED_VLLM), *(("sglang", word) for word in REFUSED_SGLANG)],
    ids=lambda value: ascii(value)[:60],
)
def test_a_refused_argument_is_refused_with_a_reason_in_every_spelling(engine: str, word: str) -> None:
    problems = check_args(engine, ["--block-size", "16", word])

    assert problems
    assert all(problem.isprintable() for problem in problems)


@pytest.mark.parametrize(
    ("engine", "args"),
    [*(("vllm", args) for args in ALLOWED_VLLM), *(("sglang", args) for args in ALLOWED_SGLANG)],
    ids=str,
)
def test_what_tunes_passes(engine: str, args: list[str]) -> None:
    assert check_args(engine, args) == []


@pytest.mark.parametrize("engine", TABLES)
@pytest.mark.parametrize("name", REFUSED_ENV)
def test_a_refused_variable_is_refused(engine: str, name: str) -> None:
    assert check_env(engine, {name: "1"})


@pytest.mark.parametrize("name", ["VLLM_DP_SIZE", "VLLM_DP_RANK", "VLLM_DP_RANK_LOCAL"])
def test_a_variable_that_stands_for_a_refused_flag_is_refused_as_that_flag(name: str) -> None:
    assert "it stands for --data-parallel" in check_env("vllm", {name: "2"})[0]


@pytest.mark.parametrize(
    ("engine", "args", "found"),
    [
        ("vllm", ["--api-server-count", "2"], "--api-server-count"),
        ("vllm", ["--api-server-count=2"], "--api-server-count=2"),
        ("vllm", ["--api_server_count=2"], "--api_server_count=2"),
        ("vllm", ["--seed", "1", "--api-s=2"], "--api-s=2"),
        ("vllm", ["-asc", "2"], "-asc"),
        ("vllm", ["-asc=2"], "-asc=2"),
        ("vllm", ["--async-scheduling", "-ac.backend", "FLASH", "-q", "awq", "2"], ""),
        ("vllm", [], ""),
        ("sglang", ["--tokenizer-worker-num", "2"], "--tokenizer-worker-num"),
        ("sglang", ["--tokenizer-w=2"], "--tokenizer-w=2"),
        ("sglang", ["--tokenizer_worker_num=2"], "--tokenizer_worker_num=2"),
        ("sglang", ["--tokenizer-mode", "auto", "--detokenizer-worker-num=2"], ""),
    ],
)
def test_what_makes_several_servers_is_found_in_every_spelling(engine: str, args: list[str], found: str) -> None:
    assert find_flag(engine, args, *SEVERAL_SERVERS[engine]) == found
    assert check_args(engine, args) == [], "alone it is fine"


def test_there_are_enough_spellings_for_each_family() -> None:
    assert len(REFUSED_VLLM) + len(ALLOWED_VLLM) >= 120
    assert len(REFUSED_SGLANG) + len(ALLOWED_SGLANG) >= 120


@pytest.mark.parametrize("engine", TABLES)
def test_every_flag_of_the_help_is_judged_the_same_under_all_its_names(engine: str) -> None:
    """`--tp-size` and `--tensor-parallel-size` are one flag; so are a switch and its `--no-` twin's prefix."""
    for names in set(names_of(engine).values()):
        verdicts = {bool(check_args(engine, [name])) for name in names if not name.startswith("--no-")}
        assert len(verdicts) == 1, names


@pytest.mark.parametrize("engine", TABLES)
def test_the_table_names_flags_that_exist(engine: str) -> None:
    """A slip of the pen in the table would be an open door."""
    elsewhere = {
        "--task", "--worker-use-ray", "--device", "-v", "--version", "--tp", "--pp", "--dp",
        "-O", "-O0", "-O1", "-O2", "-O3",
    }  # fmt: skip
    table, known = TABLES[engine], names_of(engine)

    assert {f for f in (*table.refused, *table.allowed, *table.short) if f not in known} <= elsewhere


def _reaches(engine: str, words: list[str]) -> set[str]:
    """Refused flags that the engine's parser sees."""
    names = {name: (name,) if name.startswith("--no-") else alike for name, alike in names_of(engine).items()}
    return {flag for flag in flags_seen(engine, words) if any(n in TABLES[engine].refused for n in names[flag])}


def test_the_model_of_the_parser_sees_what_the_engine_would_see() -> None:
    for words in (["--hos=x"], ["--host", "x"], ["--compil.cache_dir", "/x"], ["--served_model", "x"], ["-tp", "2"]):
        assert _reaches("vllm", words), words
    for words in (["--enable-prompt-e"], ["--enable_prompt_embeds"]):
        assert _reaches("vllm", words), words
    for words in (["--no-enable-prompt-embeds"], ["--no-enable-prompt-e"]):
        assert not _reaches("vllm", words), words
    for words in (["--hos=x"], ["--api-k", "x"], ["--conf=/x"], ["--trust-remote"]):
        assert _reaches("sglang", words), words
    with pytest.raises(Rejected):
        flags_seen("vllm", ["--no-such-flag"])


@st.composite
def _words(draw: st.DrawFn, engine: str) -> list[str]:
    """A command line of flags under strange spellings, and values."""
    names = sorted(names_of(engine))
    words: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(names))
        cut = draw(st.integers(3, len(name))) if len(name) > 3 else len(name)
        flag = draw(st.sampled_from([name, name[:cut], name.replace("-", "_").replace("__", "--", 1), name.upper()]))
        flag += draw(st.sampled_from(["", "", "", "=1", "=/x", ".key", ".key=1", ".a.b+", "+", "2", "=", "=--host"]))
        words.append(flag)
        words.extend(draw(st.lists(st.sampled_from(["1", "/x", "-1", "x.y", "{}", "-1.5", "", "a=b", "-.5", "-inf"]))))
    return words


@pytest.mark.parametrize("engine", TABLES)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_accepted_list_makes_the_engine_see_a_refused_flag(engine: str, data: st.DataObject) -> None:
    words = data.draw(_words(engine))
    assume(not check_args(engine, words))
    try:
        reached = _reaches(engine, words)
    except Rejected:
        event("the engine refuses it")
        return

    event("the engine takes it")
    assert not reached


@pytest.mark.parametrize("engine", TABLES)
def test_no_beginning_of_a_refused_flag_is_accepted_and_still_reaches_it(engine: str) -> None:
    """All of them, not a sample: each name cut at each length, in three forms."""
    for name in (name for name in TABLES[engine].refused if name in names_of(engine)):
        for length in range(2, len(name) + 1):
            for words in ([name[:length]], [name[:length] + "=1"], [name[:length], "1"], [name[:length] + ".x=1"]):
                if not check_args(engine, words):
                    try:
                        assert not _reaches(engine, words), words
                    except Rejected:
                        continue
