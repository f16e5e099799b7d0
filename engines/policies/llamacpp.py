"""llama-server's flags (help of b10068 and b11434 read line by line). Pure data.

Spelling: exact names only, with `_` read as `-` after `--` (`--list_devices` works); no `--flag=value`, no prefixes.
Both are judged all the same: they cost nothing and another build may take them.
"""

from engines.policies.table import FlagTable

_OURS = "llmgw sets it itself"
_CONTEXT = "llmgw sets it from contextLength and maxConcurrency"
_READS = "it makes the engine read a file of its choice"
_WRITES = "it makes the engine write to a path of its choice"
_NETWORK = "it makes the engine fetch from the network"
_EXITS = "it prints something and ends, so the runtime would never serve"
_RUNS = "it lets requests run tools or reach other addresses"
_ROUTES = "it moves or opens routes that llmgw relies on"
_ROUTER = "it is for llama-server's router mode, which llmgw replaces"


def _group(reason: str, *flags: str) -> dict[str, str]:
    return dict.fromkeys(flags, reason)


_REFUSED: dict[str, str] = {
    **_group(_OURS, "--host", "--port", "-m", "--model", "-a", "--alias", "--api-key", "--api-key-file"),
    **_group(_OURS, "--no-metrics", "--ui", "--webui", "--rerank", "--reranking", "--embedding", "--embeddings"),
    **_group(_OURS + " (options.mmproj)", "-mm", "--mmproj"),
    **_group(_OURS, "-dev", "--device", "--no-offline"),
    **_group(_CONTEXT, "-c", "--ctx-size", "-np", "--parallel", "-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified"),
    **_group(_CONTEXT, "--kv-unified-per-slot"),
    **_group(_READS, "--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled"),
    **_group(_READS, "--grammar-file", "-jf", "--json-schema-file", "--chat-template-file", "-mv", "--model-vocoder"),
    **_group(_READS, "--spec-draft-model", "-md", "--model-draft", "--media-path", "--path"),
    **_group(_READS, "--ui-config-file", "--webui-config-file", "--ssl-key-file", "--ssl-cert-file"),
    **_group(_READS, "-lcs", "--lookup-cache-static", "-f", "--file", "-bf", "--binary-file", "-sysf"),
    **_group(_READS, "--system-prompt-file", "--in-file", "--image", "--audio"),
    **_group(_WRITES, "--log-file", "--slot-save-path", "-lcd", "--lookup-cache-dynamic", "--log-prompts-dir"),
    **_group(_WRITES, "--prompt-cache", "--output", "-o", "--output-file", "--save-all-logits", "--logdir"),
    **_group(_NETWORK, "-mu", "--model-url", "-dr", "--docker-repo", "-hf", "-hfr", "--hf-repo", "-hff", "--hf-file"),
    **_group(_NETWORK, "-hfv", "-hfrv", "--hf-repo-v", "-hffv", "--hf-file-v", "-hft", "--hf-token", "-mmu"),
    **_group(_NETWORK, "--mmproj-url", "--mmproj-auto", "--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft"),
    **_group("it hands the model's layers to other machines", "--rpc"),
    **_group(_RUNS, "--tools", "-ag", "--agent", "--ui-mcp-proxy", "--webui-mcp-proxy", "--mcp-config"),
    **_group(_ROUTES, "--api-prefix", "--props", "--reuse-port"),
    **_group(_ROUTER, "--models-dir", "--models-preset", "--models-max", "--models-autoload", "--no-models-autoload"),
    **_group(_EXITS, "-h", "--help", "--usage", "--version", "-cl", "--cache-list", "--completion-bash"),
    **_group(_EXITS, "--list-devices"),
}

_PATTERNS = (
    # --embd-gemma-default, --fim-qwen-7b-spec, --gpt-oss-20b-default, …: presets that download a model.
    (r"--(embd|fim|gpt-oss|vision|tts|bge|e5|catgpt)-.*", _NETWORK),
)

_ALLOWED = frozenset(
    {
        "--no-mmproj", "--no-mmproj-auto", "--mmproj-offload", "--no-mmproj-offload", "--lora-init-without-apply",
        "--no-ui", "--no-webui", "--no-ui-mcp-proxy", "--no-webui-mcp-proxy", "-no-ag", "--no-agent", "--no-host",
        "--threads-http", "--spec-default", "--tts-use-guide-tokens", "--embd-normalize", "--load-mode",
        "--mmproj-device",
    }
)  # fmt: skip

_SHORT = frozenset(
    """-t -tb -C -Cb -Cr -Crb -n -b -ub -fa -e -kvo -nkvo -nr -ctk -ctv -dt -dio -ndio -ot -cmoe -ncmoe -ngl -sm -ts -mg
    -fit -fitt -fitc -v -lv -s -l -j -bs -td -tbd -Cd -Crd -Cbd -otd -cmoed -ncmoed -devd -ngld -ctkd -ctvd -ctxcp -cms
    -cram -r -sp -cb -nocb -to -rea -sps -no-ag -lm -lzm -ncffn -mmdev""".split()  # noqa: SIM905 - words read as words
)

LLAMACPP = FlagTable(
    refused=_REFUSED,
    allowed=_ALLOWED,
    short=_SHORT,
    patterns=_PATTERNS,
    underscores=True,
    environment={
        "LLAMA_API_KEY": "--api-key",
        "LLAMA_ARG_STATIC_PATH": "--path",
        "LLAMA_ARG_MODEL_URL": "--model-url",
        "LLAMA_ARG_N_PARALLEL": "--parallel",
        "LLAMA_ARG_CTX_SIZE": "--ctx-size",
        "LLAMA_ARG_ENDPOINT_PROPS": "--props",
        "LLAMA_ARG_SPEC_DRAFT_HF_REPO": "--spec-draft-hf",
        "LLAMA_LOG_FILE": "--log-file",
        "LLAMA_ARG_LOG_FILE": "--log-file",
    },
    environment_prefix="LLAMA_ARG_",
)
