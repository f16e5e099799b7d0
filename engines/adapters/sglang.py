"""SGLang: `sglang.launch_server` on a folder of safetensors, OpenAI routes, several nodes, LoRA.

Written against 0.5.23 (its help, routes and metrics). What is not obvious:

- The key guards everything but paths that begin with `/health`, `/ready` and `/metrics`. It is added to the arguments
  inside the process (`engines/launchers`), since SGLang takes it by no other way.
- It knows one name and answers requests under any other all the same, so only the engine's own name is given. A colon
  in a name means `model:adapter` to it: such an id cannot be served.
- Refused, then 503 with an empty body for some seconds, then 200.
- Several nodes: `--nnodes`, `--node-rank`, `--dist-init-addr HOST:PORT`; ranks above 0 answer `/health` and no request.
- `/metrics` needs `--enable-metrics`.
- LoRA needs pinned memory, so a card. Adapters that are loaded while it serves are written from its help and its
  source alone: no card was at hand to run them on.
"""

from engines.adapter import (
    Build,
    EngineCommand,
    EngineSpec,
    Gate,
    Health,
    HealthProbe,
    Lora,
    NodeFacts,
    Progress,
)
from engines.adapters.answers import read_server_health
from engines.adapters.interpreter import (
    PARALLEL_OPTIONS,
    build_environment,
    check_parallel,
    launch_with_key,
    option_flags,
    parallel_sizes,
    readable_paths,
    require_build,
)
from engines.adapters.lora import LORA_OPTIONS, check_lora, check_one_server, read_lora, readable_adapters
from engines.kv_events import HASH_SEED, KV_OPTIONS, check_kv_events, is_asked, kv_events, publisher_config
from engines.lora_api import LoraApi
from engines.options import Option, check_options
from engines.prometheus import read_samples
from engines.spec import check_common, check_weights, require_clean

_OPTIONS = {
    **PARALLEL_OPTIONS,
    **LORA_OPTIONS,
    **KV_OPTIONS,
    "runtimeLora": Option(bool),
    "embeddings": Option(bool),
    "pageSize": Option(int, minimum=1, maximum=4096),
    "maxTotalTokens": Option(int, minimum=1),
}

_FLAGS = {
    "memoryFraction": "--mem-fraction-static",
    "dtype": "--dtype",
    "quantization": "--quantization",
    "embeddings": "--is-embedding",
    "pageSize": "--page-size",
    "maxTotalTokens": "--max-total-tokens",
}

_ON_THE_CPU = (
    *("--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch"),
    *("--disable-overlap-schedule",),
)

_USUAL_RANK = 64
"""Of adapters that nobody gave a bound for (`options.maxLoraRank`)."""


class SglangAdapter:
    """See the module."""

    name = "sglang"
    needs_weights = True
    needs_build = True
    usage_when_asked = True
    demands_key = True
    gate: Gate | None = None
    works_on = False
    routes = frozenset(
        {
            *("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank", "/v1/responses"),
            *("/v1/messages", "/v1/messages/count_tokens", "/v1/tokenize", "/v1/detokenize"),
            *("/v1/score", "/tokenize", "/detokenize"),
        }
    )
    overhead_mib: int | None = 4096  # three interpreters with torch
    lora = Lora.AT_RUN_TIME
    lora_api: LoraApi | None = LoraApi("/load_lora_adapter", "/unload_lora_adapter", asked_with_base=True)
    multi_node = True
    metrics_path: str | None = "/metrics"

    def check_spec(self, spec: EngineSpec) -> list[str]:
        problems = check_common(spec) + check_weights(spec.weights) + check_options(spec.options, _OPTIONS)
        problems.extend(
            f"model id {model[:60]!r} has a colon, which sglang reads as model:adapter (set upstreamModel)"
            for model in spec.served_models
            if ":" in model
        )
        if not spec.devices and (read_lora(spec) or spec.adapter_slots):
            problems.append("adapters need a card: sglang cannot load them on the CPU")
        problems += check_lora(spec) + check_one_server(spec, "--tokenizer-worker-num")
        problems += check_kv_events(spec, needs=("--disable-radix-cache",))
        return problems + (check_parallel(spec) if not problems else [])

    def build_command(self, spec: EngineSpec, build: Build | None, facts: NodeFacts) -> EngineCommand:
        require_clean(spec, self.check_spec(spec))
        build = require_build(spec, build)
        argv = (
            *launch_with_key(build, "flag:--api-key", "sglang.launch_server"),
            *("--model-path", str(spec.weights), f"--served-model-name={spec.served_models[0]}"),
            *("--host", spec.host, "--port", str(spec.port)),
            *("--max-running-requests", str(spec.max_concurrency), *_context(spec)),
            *_parallel(spec),
            *option_flags(spec, _FLAGS),
            *_lora(spec),
            *_kv_events(spec),
            *(() if spec.devices else _ON_THE_CPU),
            "--enable-metrics",
            *spec.args,
        )
        return EngineCommand(
            argv=argv,
            environment=build_environment(spec, build, facts, _defaults(spec)),
            read_only_paths=(*readable_paths(spec, build), *readable_adapters(spec)),
            read_write_paths=(str(spec.home), *((str(spec.sockets),) if is_asked(spec) else ())),
        )

    def health_probe(self, spec: EngineSpec) -> HealthProbe:
        return HealthProbe("/health")

    def read_health(self, status: int, body: bytes) -> Health:
        return read_server_health(status)

    def read_progress(self, metrics: str) -> Progress:
        samples = read_samples(metrics)
        counted = [samples.get(f"sglang:{name}_tokens_total") for name in ("prompt", "generation")]
        tokens = [value for value in counted if value is not None]
        return Progress(
            running=samples.get("sglang:num_running_reqs"),
            waiting=samples.get("sglang:num_queue_reqs"),
            tokens_total=sum(tokens) if tokens else None,
        )


def _context(spec: EngineSpec) -> tuple[str, ...]:
    return ("--context-length", str(spec.context_length)) if spec.context_length else ()


def _parallel(spec: EngineSpec) -> tuple[str, ...]:
    tensor, pipeline = parallel_sizes(spec)
    words = ["--tp-size", str(tensor), "--pp-size", str(pipeline)]
    meeting = spec.rendezvous
    if meeting:
        host = f"[{meeting.address}]" if ":" in meeting.address else meeting.address
        words += ["--nnodes", str(meeting.size), "--node-rank", str(meeting.rank)]
        words += ["--dist-init-addr", f"{host}:{meeting.port}"]
    return tuple(words)


def _lora(spec: EngineSpec) -> tuple[str, ...]:
    adapters = [f"{name}={path}" for name, path in read_lora(spec)]
    if not adapters and not spec.adapter_slots:
        return ()
    sizes = option_flags(spec, {"maxLoras": "--max-loras-per-batch", "maxLoraRank": "--max-lora-rank"})
    if spec.adapter_slots:
        # What it begins with tells it how large adapters are; of those that come later it must be told.
        rank = () if "maxLoraRank" in spec.options else (f"--max-lora-rank={_USUAL_RANK}",)
        sizes = (*sizes, *rank, "--lora-target-modules", "all")
    return ("--enable-lora", *sizes, *(("--lora-paths", *adapters) if adapters else ()))


def _kv_events(spec: EngineSpec) -> tuple[str, ...]:
    events = kv_events(spec)
    return ("--kv-events-config", publisher_config(events)) if events else ()


def _defaults(spec: EngineSpec) -> dict[str, str]:
    defaults = {} if spec.devices else {"SGLANG_USE_CPU_ENGINE": "1"}
    if is_asked(spec):
        defaults |= HASH_SEED
    if spec.rendezvous and spec.rendezvous.own_address:
        defaults["SGLANG_HOST_IP"] = spec.rendezvous.own_address
    return defaults
