"""TensorRT-LLM: `trtllm-serve`, brought by the operator, OpenAI routes.

llmgw installs no build of it: the package index has only a stub that fetches from NVIDIA's own index. The runtime's
`build` is the python (or the `trtllm-serve`) of an environment in which the operator installed it. Written from its
documentation (1.2); only flags that it has had since 0.20 are used, and none of this was run on a card of ours.

- It demands no key, and serves management routes beside inference: it stays on loopback, behind the generic gate.
- It ignores the model's name in a request.
- It needs a card; several nodes go over MPI, which llmgw does not start.
"""

from engines.adapter import (
    Build,
    EngineCommand,
    EngineSpec,
    Gate,
    GateKind,
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
    option_flags,
    parallel_sizes,
    readable_paths,
    require_build,
)
from engines.lora_api import LoraApi
from engines.options import check_options
from engines.spec import check_common, check_single_node, check_weights, require_clean

_OPTIONS = {
    name: PARALLEL_OPTIONS[name] for name in ("tensorParallel", "pipelineParallel", "memoryFraction", "threads")
}
_FLAGS = {"memoryFraction": "--kv_cache_free_gpu_memory_fraction"}


class TrtLlmAdapter:
    """See the module."""

    name = "trtllm"
    needs_weights = True
    needs_build = True
    usage_when_asked = True
    demands_key = False
    gate: Gate | None = Gate(GateKind.GENERIC)
    works_on = False
    routes = frozenset({"/v1/chat/completions", "/v1/completions"})
    overhead_mib: int | None = 8192
    lora = Lora.NEVER
    lora_api: LoraApi | None = None
    multi_node = False
    metrics_path: str | None = None

    def check_spec(self, spec: EngineSpec) -> list[str]:
        problems = check_common(spec) + check_single_node(spec) + check_weights(spec.weights)
        problems += check_options(spec.options, _OPTIONS)
        return problems + (check_parallel(spec) if not problems else [])

    def build_command(self, spec: EngineSpec, build: Build | None, facts: NodeFacts) -> EngineCommand:
        require_clean(spec, self.check_spec(spec))
        build = require_build(spec, build)
        tensor, pipeline = parallel_sizes(spec)
        argv = (
            *(str(build.executable.with_name("trtllm-serve")), "serve", str(spec.weights)),
            *("--host", spec.host, "--port", str(spec.port), "--backend", "pytorch"),
            *("--tp_size", str(tensor), "--pp_size", str(pipeline), "--max_batch_size", str(spec.max_concurrency)),
            *(("--max_seq_len", str(spec.context_length)) if spec.context_length else ()),
            *option_flags(spec, _FLAGS),
            *spec.args,
        )
        return EngineCommand(
            argv=argv,
            environment=build_environment(spec, build, facts, {}),
            read_only_paths=readable_paths(spec, build),
            read_write_paths=(str(spec.home),),
        )

    def health_probe(self, spec: EngineSpec) -> HealthProbe:
        return HealthProbe("/health")

    def read_health(self, status: int, body: bytes) -> Health:
        return read_server_health(status)

    def read_progress(self, metrics: str) -> Progress:
        return Progress()
