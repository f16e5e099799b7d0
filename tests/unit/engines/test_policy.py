"""What an operator may add to an engine, as tables. Each row is one way somebody tried, or one that must stay open."""

import re
from pathlib import Path

import pytest

from engines.policy import ArgumentsRefused, check_args, check_env, require_allowed

_HELP = Path(__file__).parents[2] / "data" / "engines" / "llama-server-b10068-flags.txt"

REFUSED_ARGS = [
    # what llmgw sets itself, in every spelling
    "--host", "--host=0.0.0.0", "--HOST", "--Host=::", "--port", "--port=1", "-m", "--model", "--model=/etc/shadow",
    "-a", "--alias", "--api-key", "--api_key", "--api-key=", "--api-key-file", "--api_key_file=/x", "--api-key_file",
    "-c", "--ctx-size", "--ctx_size=1", "-np", "--parallel", "-kvu", "--no-kv-unified", "-dev", "--device",
    "--embeddings", "--embedding", "--rerank", "--reranking", "-mm", "--mmproj", "--no-metrics", "--webui",
    # reads
    "--lora", "--lora=/x", "--lora_scaled", "--lora-scaled", "--control-vector", "--grammar-file", "-jf",
    "--json-schema-file", "--chat-template-file", "--chat_template_file", "-md", "--model-draft", "--spec-draft-model",
    "--media-path", "--path", "--path=/", "--ssl-key-file", "--ssl-cert-file", "-lcs", "-mv", "--ui-config-file",
    # writes
    "--log-file", "--log-file=/etc/cron.d/x", "--log_file", "--slot-save-path", "-lcd", "--log-prompts-dir",
    # network
    "-mu", "--model-url", "-dr", "-hf", "-hfr", "--hf-repo", "--hf_repo", "-hff", "-hft", "--hf-token", "-mmu",
    "--mmproj-url", "--mmproj-auto", "-hfd", "--rpc", "--rpc=10.0.0.1:50052", "--gpt-oss-20b-default",
    "--fim-qwen-7b-spec", "--embd-gemma-default", "--vision-gemma-4b-default",
    # code, routes, router mode
    "--tools", "-ag", "--agent", "--ui-mcp-proxy", "--webui-mcp-proxy", "--api-prefix", "--props", "--reuse-port",
    "--models-dir", "--models-preset", "--models-max",
    # prints and ends
    "-h", "--help", "--usage", "--version", "--completion-bash", "--list-devices", "--list_devices", "-cl",
    # newer than the table
    "--mcp-servers-config", "--some-new-file", "--plugin-dir", "--remote-store-url", "-zz", "-hfx", "-m=/x", "-md=/x",
    "--draft-model-path=/x", "--new-load-format", "--auth-token",
    # not words for an argv at all
    "a\x00b", "--temp\n--host", "--temp\r", "\x1b[2J", "--x\ud800", "-", "--", "x" * 40_000,
]  # fmt: skip

ALLOWED_ARGS = [
    ["-t", "4"], ["--threads", "8"], ["-b", "512"], ["--batch-size", "512"], ["-ub", "256"], ["-fa", "on"],
    ["--flash-attn", "auto"], ["-ctk", "q8_0"], ["--cache-type-v", "q8_0"], ["-ngl", "20"], ["--n-gpu-layers", "all"],
    ["--mlock"], ["--no-mmap"], ["--no_mmap"], ["--temp", "0.2"], ["--top-k", "40"], ["-s", "-1"], ["-n", "-1"],
    ["--numa", "distribute"], ["--jinja"], ["--chat-template", "chatml"], ["--reasoning-format", "none"],
    ["--rope-scaling", "yarn"], ["--rope-freq-scale", "-.5"], ["-ts", "3,1"], ["--split-mode", "row"],
    ["--override-kv", "tokenizer.ggml.add_bos_token=bool:false"], ["-ot", "exps=CPU"], ["--cache-ram", "0"],
    ["--no-warmup"], ["--spec-draft-n-max", "8"], ["--threads-http", "4"], ["--slots"], ["--no-slots"], ["-v"],
    ["--timeout", "600"], ["--pooling", "mean"], ["--no-context-shift"], ["--json-schema", "{}"], [""], [],
]  # fmt: skip

REFUSED_ENV = [
    # not tuning, or the loader's
    "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PATH", "HOME", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "HF_TOKEN",
    "HTTP_PROXY", "https_proxy", "AWS_SECRET_ACCESS_KEY", "GCONV_PATH", "LOCPATH", "TMPDIR", "XDG_CONFIG_HOME", "IFS",
    "NODE_OPTIONS", "SSL_CERT_FILE", "VK_ICD_FILENAMES", "VK_LAYER_PATH", "VK_INSTANCE_LAYERS", "LIBVA_DRIVERS_PATH",
    # paths, plug-ins and injections within the families
    "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN", "NCCL_TOPO_FILE", "NCCL_DEBUG_FILE",
    "NCCL_CONF_FILE", "NCCL_COMM_ID", "CUDA_INJECTION64_PATH", "CUDA_CACHE_PATH", "OMP_TOOL_LIBRARIES", "OMP_TOOL",
    "GGML_BACKEND_PATH", "LLAMA_CACHE", "VLLM_API_KEY", "VLLM_PLUGINS", "VLLM_HOST_IP", "VLLM_PORT", "VLLM_CACHE_ROOT",
    "VLLM_CONFIG_ROOT", "VLLM_LOGGING_CONFIG_PATH", "VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_INSECURE_SERIALIZATION",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_USE_MODELSCOPE", "VLLM_TORCH_PROFILER_DIR", "VLLM_NCCL_SO_PATH",
    "TORCH_EXTENSIONS_DIR", "TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCH_LOGS_OUT", "MALLOC_TRACE",
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "SGLANG_HOST_IP", "LLAMA_LOG_FILE",
    # flags in disguise
    "LLAMA_API_KEY", "LLAMA_ARG_HOST", "LLAMA_ARG_PORT", "LLAMA_ARG_MODEL", "LLAMA_ARG_MODEL_URL", "LLAMA_ARG_ALIAS",
    "LLAMA_ARG_HF_REPO", "LLAMA_ARG_HF_FILE", "LLAMA_ARG_DOCKER_REPO", "LLAMA_ARG_API_KEY_FILE", "LLAMA_ARG_MMPROJ",
    "LLAMA_ARG_MMPROJ_URL", "LLAMA_ARG_RPC", "LLAMA_ARG_LOG_FILE", "LLAMA_ARG_CTX_SIZE", "LLAMA_ARG_N_PARALLEL",
    "LLAMA_ARG_SSL_KEY_FILE", "LLAMA_ARG_CHAT_TEMPLATE_FILE", "LLAMA_ARG_STATIC_PATH", "LLAMA_ARG_TOOLS",
    "LLAMA_ARG_AGENT", "LLAMA_ARG_MODELS_DIR", "LLAMA_ARG_ENDPOINT_PROPS", "LLAMA_ARG_REUSE_PORT", "LLAMA_ARG_DEVICE",
    "LLAMA_ARG_SPEC_DRAFT_MODEL", "LLAMA_ARG_SPEC_DRAFT_HF_REPO", "LLAMA_ARG_API_PREFIX", "LLAMA_ARG_EMBEDDINGS",
    # ours
    "CUDA_VISIBLE_DEVICES",
    # no names
    "", "A=B", "1A", "A B", "A\nB", "A\x00", "É", "llama_arg_host", "A" * 200,
]  # fmt: skip

ALLOWED_ENV = [
    "NCCL_DEBUG", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_P2P_DISABLE", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING", "CUDA_CACHE_MAXSIZE", "OMP_NUM_THREADS", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY",
    "GGML_VK_VISIBLE_DEVICES", "GGML_CUDA_ENABLE_UNIFIED_MEMORY", "LLAMA_ARG_THREADS", "LLAMA_ARG_FLASH_ATTN",
    "LLAMA_ARG_CACHE_RAM", "VLLM_CPU_KVCACHE_SPACE", "VLLM_ATTENTION_BACKEND", "VLLM_LOGGING_LEVEL",
    "PYTORCH_CUDA_ALLOC_CONF", "TOKENIZERS_PARALLELISM", "MALLOC_ARENA_MAX", "TZ", "LANG",
]  # fmt: skip


@pytest.mark.parametrize("word", REFUSED_ARGS, ids=lambda word: ascii(word)[:40])
def test_an_argument_that_could_redirect_the_engine_is_refused_with_its_name_and_a_reason(word: str) -> None:
    (problem,) = check_args("llamacpp", ["--threads", "2", word])

    assert repr(word[:60]) in problem
    assert problem.partition(": ")[2]


@pytest.mark.parametrize("args", ALLOWED_ARGS, ids=" ".join)
def test_tuning_stays_open(args: list[str]) -> None:
    assert check_args("llamacpp", args) == []


@pytest.mark.parametrize("name", REFUSED_ENV, ids=lambda name: ascii(name)[:40])
def test_a_variable_that_carries_a_path_a_library_an_address_or_a_key_is_refused(name: str) -> None:
    (problem,) = check_env("llamacpp", {"OMP_NUM_THREADS": "2", name: "x"})

    assert problem.startswith("environment ")


@pytest.mark.parametrize("name", ALLOWED_ENV)
def test_tuning_variables_stay_open(name: str) -> None:
    assert check_env("llamacpp", {name: "1"}) == []


@pytest.mark.parametrize("value", ["a\nB=c", "a\x00", "\x1b", "x\ud800", "y" * 40_000], ids=ascii)
def test_a_value_that_no_unit_file_can_carry_is_refused(value: str) -> None:
    assert len(check_env("llamacpp", {"OMP_PLACES": value})) == 1


@pytest.mark.parametrize("word", ["--po", "--por=1", "--mod", "--key", "--slot", "--context", "-h", "--hel"])
def test_a_prefix_that_argparse_would_complete_is_refused_for_the_simulated_engine(word: str) -> None:
    assert len(check_args("sim", [word])) == 1


@pytest.mark.parametrize("word", ["--tokens=3", "--first-token-s", "--load-time", "--fault", "--fork-child"])
def test_the_simulated_engine_may_be_tuned(word: str) -> None:
    assert check_args("sim", [word]) == []


def test_an_operators_own_command_takes_any_argument_that_is_text() -> None:
    assert check_args("command", ["--host", "0.0.0.0", "-m", "/x"]) == []
    assert len(check_args("command", ["a\x00"])) == 1


def test_every_flag_of_the_genuine_help_that_names_a_file_or_an_address_is_refused() -> None:
    flags = _HELP.read_text(encoding="utf-8").split()
    telling = re.compile(r"file|path|url|repo|token$|key|host$|port$|-dir$|rpc|tools|agent|^--model|lora|hf")
    open_ones = {flag for flag in flags if telling.search(flag) and not check_args("llamacpp", [flag])}

    assert open_ones == {"--lora-init-without-apply", "--no-agent", "--no-host"}


def test_all_reasons_come_in_one_error() -> None:
    with pytest.raises(ArgumentsRefused) as caught:
        require_allowed("llamacpp", ["--host", "--log-file"], {"LD_PRELOAD": "x"})

    assert all(word in caught.value.message for word in ("--host", "--log-file", "LD_PRELOAD"))
    assert caught.value.hint
