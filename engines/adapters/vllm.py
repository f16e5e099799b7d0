"""vLLM: `vllm serve` on a folder of safetensors, OpenAI routes, tensor and pipeline parallel, several nodes, LoRA.

Written against 0.32.0 (its `--help=all`, its routes and metrics, and the CPU build itself). What is not obvious:

- The key guards `/v1`, `/v2` and `/inference` only. `/invocations` (a whole inference!), `/pause`, `/scale_elastic_ep`,
  `/update_weights`, `/tokenize` and `/metrics` are open to whoever reaches the port. So it listens on loopback, and the
  gateway passes `routes` only.
- The key comes by `VLLM_API_KEY`, not `--api-key`: the argument would be in /proc and in vLLM's own log.
- It refuses connections until it is ready, and answers 503 only when its engine process has died: that is a failure.
- Every name in `--served-model-name` is served; an unknown one is 404. A name that begins with a dash can only be given
  alone, as `--served-model-name=-x`.
- The model is a positional argument (`--model` is refused by `vllm serve`).
- Several nodes: the same command everywhere with `--nnodes`, `--node-rank`, `--master-addr`, `--master-port`; ranks
  above 0 are `--headless` and serve nothing at all, not even `/health`.
- LoRA at run time (`/v1/load_lora_adapter`) needs `VLLM_ALLOW_RUNTIME_LORA_UPDATING` and `--enable-lora`. Unloading
  forgets the name at once; the weights go when room is needed, so `--max-cpu-loras` must not be less than we load.
  It refuses to start with both that and more than one API server.
- Its key/value cache's events (`engines/kv_events`) come from the process that schedules, so from rank 0 alone.
- A client that leaves aborts its request within 1.5 s.
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
    "eager": Option(bool),
    "blockSize": Option(int, minimum=1, maximum=4096),
    "kvCacheGib": Option(int, minimum=1, maximum=1 << 14),
}

_FLAGS = {
    "memoryFraction": "--gpu-memory-utilization",
    "dtype": "--dtype",
    "quantization": "--quantization",
    "eager": "--enforce-eager",
    "blockSize": "--block-size",
}


class VllmAdapter:
    """See the module."""

    name = "vllm"
    needs_weights = True
    needs_build = True
    usage_when_asked = True
    demands_key = True
    gate: Gate | None = None
    works_on = False
    routes = frozenset(
        {
            *("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank", "/v1/responses"),
            *("/v1/messages", "/v1/messages/count_tokens", "/tokenize", "/detokenize"),
            *("/v1/score", "/v1/audio/transcriptions", "/v1/audio/translations"),
        }
    )
    overhead_mib: int | None = 4096  # two interpreters with torch, and pinned buffers
    lora = Lora.AT_RUN_TIME
    lora_api: LoraApi | None = LoraApi("/v1/load_lora_adapter", "/v1/unload_lora_adapter")
    multi_node = True
    metrics_path: str | None = "/metrics"

    def check_spec(self, spec: EngineSpec) -> list[str]:
        problems = check_common(spec) + check_weights(spec.weights) + check_options(spec.options, _OPTIONS)
        if len(spec.served_models) > 1:
            problems.extend(
                f"model id {model[:60]!r} begins with a dash, which vllm can only take alone"
                for model in spec.served_models
                if model.startswith("-")
            )
        problems += check_lora(spec) + check_one_server(spec, "--api-server-count", "-asc")
        problems += check_kv_events(spec, needs=("--no-enable-prefix-caching",))
        return problems + (check_parallel(spec) if not problems else [])

    def build_command(self, spec: EngineSpec, build: Build | None, facts: NodeFacts) -> EngineCommand:
        require_clean(spec, self.check_spec(spec))
        build = require_build(spec, build)
        argv = (
            *launch_with_key(build, "env:VLLM_API_KEY", "vllm.entrypoints.cli.main"),
            *("serve", str(spec.weights), *_names(spec)),
            *("--host", spec.host, "--port", str(spec.port)),
            *("--max-num-seqs", str(spec.max_concurrency), *_context(spec)),
            *_parallel(spec),
            *option_flags(spec, _FLAGS),
            *_kv_cache(spec),
            *_lora(spec),
            *_kv_events(spec),
            *(("--runner", "pooling") if spec.options.get("embeddings") is True else ()),
            # One line for each request is the gateway's to write.
            "--disable-uvicorn-access-log",
            *spec.args,
        )
        return EngineCommand(
            argv=argv,
            environment=build_environment(spec, build, facts, _defaults(spec)),
            read_only_paths=(*readable_paths(spec, build), *readable_adapters(spec)),
            read_write_paths=(str(spec.home), *((str(spec.sockets),) if is_asked(spec) else ())),
        )

    def health_probe(self, spec: EngineSpec) -> HealthProbe:
        return HealthProbe("" if spec.rendezvous and spec.rendezvous.rank else "/health")

    def read_health(self, status: int, body: bytes) -> Health:
        return Health.READY if status == 200 else Health.FAILED

    def read_progress(self, metrics: str) -> Progress:
        samples = read_samples(metrics)
        counted = [samples.get(f"vllm:{name}_tokens_total") for name in ("prompt", "generation")]
        tokens = [value for value in counted if value is not None]
        return Progress(
            running=samples.get("vllm:num_requests_running"),
            waiting=samples.get("vllm:num_requests_waiting"),
            tokens_total=sum(tokens) if tokens else None,
        )


def _names(spec: EngineSpec) -> tuple[str, ...]:
    if len(spec.served_models) == 1:
        return (f"--served-model-name={spec.served_models[0]}",)
    return ("--served-model-name", *spec.served_models)


def _context(spec: EngineSpec) -> tuple[str, ...]:
    return ("--max-model-len", str(spec.context_length)) if spec.context_length else ()


def _parallel(spec: EngineSpec) -> tuple[str, ...]:
    tensor, pipeline = parallel_sizes(spec)
    words = ["--tensor-parallel-size", str(tensor), "--pipeline-parallel-size", str(pipeline)]
    meeting = spec.rendezvous
    if meeting:
        words += ["--distributed-executor-backend", "mp", "--nnodes", str(meeting.size)]
        words += ["--node-rank", str(meeting.rank)]
        words += ["--master-addr", meeting.address, "--master-port", str(meeting.port)]
        words += ["--headless"] if meeting.rank else []
    return tuple(words)


def _kv_cache(spec: EngineSpec) -> tuple[str, ...]:
    size_gib = spec.options.get("kvCacheGib")
    if not isinstance(size_gib, int) or not spec.devices:
        return ()
    return ("--kv-cache-memory-bytes", str(size_gib << 30))


def _lora(spec: EngineSpec) -> tuple[str, ...]:
    modules = [f"{name}={path}" for name, path in read_lora(spec)]
    if not modules and not spec.adapter_slots:
        return ()
    words = ["--enable-lora", *option_flags(spec, {"maxLoras": "--max-loras", "maxLoraRank": "--max-lora-rank"})]
    if spec.adapter_slots:
        held = spec.adapter_slots + len(modules)
        batch = spec.options.get("maxLoras")
        words += [] if isinstance(batch, int) else [f"--max-loras={held}"]
        words += [f"--max-cpu-loras={max(held, batch) if isinstance(batch, int) else held}"]
    return (*words, *(("--lora-modules", *modules) if modules else ()))


def _kv_events(spec: EngineSpec) -> tuple[str, ...]:
    events = kv_events(spec)
    return ("--kv-events-config", publisher_config(events, enable_kv_cache_events=True)) if events else ()


def _defaults(spec: EngineSpec) -> dict[str, str]:
    defaults = {"VLLM_NO_USAGE_STATS": "1"}
    if is_asked(spec):
        defaults |= HASH_SEED
    if spec.adapter_slots:
        defaults["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "True"
    if spec.rendezvous and spec.rendezvous.own_address:
        defaults["VLLM_HOST_IP"] = spec.rendezvous.own_address
    size_gib = spec.options.get("kvCacheGib")
    if not spec.devices and isinstance(size_gib, int):
        defaults["VLLM_CPU_KVCACHE_SPACE"] = str(size_gib)
    return defaults
