"""llama.cpp's `llama-server`: one GGUF file, OpenAI routes, its own key check.

Written against b10068 and b11434 (`llama-server --help` of both; see tests/engines). What is not obvious:

- `-c` is the context of all slots together and is divided by `-np`. Without a wished length every slot may use the
  model's whole context, which takes `--kv-unified`.
- Several `--alias` names are kept as a sorted set (b10068), and the first in the alphabet is what answers say. So only
  the engine's own name is given; requests under any other name are served all the same.
- A build with GPU plug-ins takes any GPU that it finds. A runtime without devices computes on the CPU, so it says
  `--device none`; a silent fallback the other way round is caught by engine-check.
- On the CPU its threads meet at a barrier some hundred times for each token. OpenMP's default is to spin there for
  milliseconds, so that any other busy process makes it 30 times slower. Measured with 135M parameters on two cores, in
  tokens/s alone and beside a load of 7: default 115, 3.5; `GOMP_SPINCOUNT=1000` 112, 18; passive waiting 67, 35.
- `--offline` keeps it from ever asking a model hub.
- A client that leaves is noticed at the next token of a stream. For a buffered answer it looks once a second, and
  starts that second anew whenever any other task has a result (b10068): beside one busy stream, or under a poll of
  `/metrics` or `/slots` faster than once a second, it computes to the end. Ask for metrics seldom.
- Its `/v1/messages` is what the anthropic SDK expects, but for a stop sequence that was met: it says `end_turn` and
  names the sequence. Its `/v1/responses` is not one of `routes`: b10068 streams items without `output_index` and
  `content_index`, on which the openai SDK breaks; asked for a chat completion instead, it serves the same.
- Adapters are loaded with `--lora-scaled` and applied to every request; none can be loaded later.
- The key is demanded on everything except `/health`; b10068 also leaves `/v1/models` open.
"""

from core.errors import ConfigError
from engines.adapter import (
    KEY_FILE,
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
from engines.adapters.scaled_lora import SCALED_LORA_OPTIONS, check_scaled_lora, read_scaled_lora
from engines.gguf import model_parts
from engines.lora_api import LoraApi
from engines.options import Option, check_options
from engines.prometheus import read_samples
from engines.spec import check_common, check_single_node, check_weights, is_clean, require_clean

_OPTIONS = {
    "threads": Option(int, minimum=1, maximum=1024),
    "gpuLayers": Option(int, minimum=0, maximum=9999),
    "embeddings": Option(bool),
    "reranking": Option(bool),
    "pooling": Option(str, choices=("none", "mean", "cls", "last", "rank")),
    "mmproj": Option(str, absolute_path=True),
    **SCALED_LORA_OPTIONS,
}

_HOST_THREADS_WITH_GPU = 8
"""With all layers on a GPU the CPU only feeds it; more threads spin for nothing."""


class LlamaCppAdapter:
    """See the module."""

    name = "llamacpp"
    needs_weights = True
    needs_build = True
    usage_when_asked = False  # its last event has `timings`, unasked
    demands_key = True
    gate: Gate | None = None
    works_on = False
    routes = frozenset(
        {
            "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank", "/tokenize", "/detokenize",
            "/v1/audio/transcriptions",
            "/v1/messages", "/v1/messages/count_tokens",
        }
    )  # fmt: skip
    overhead_mib: int | None = 768  # the context's keys and values, and compute buffers of a small model
    lora = Lora.AT_START
    lora_api: LoraApi | None = None
    multi_node = False
    metrics_path: str | None = "/metrics"

    def check_spec(self, spec: EngineSpec) -> list[str]:
        problems = (
            check_common(spec)
            + check_single_node(spec)
            + check_weights(spec.weights)
            + check_options(spec.options, _OPTIONS)
            + check_scaled_lora(spec)
        )
        problems.extend(f"model id {m!r} has a comma" for m in spec.served_models if "," in m)
        if not is_clean(str(spec.home)):
            problems.append("the runtime's home has a control character in its path")
        if spec.options.get("embeddings") is True and spec.options.get("reranking") is True:
            problems.append("options.embeddings and options.reranking exclude each other")
        return problems

    def build_command(self, spec: EngineSpec, build: Build | None, facts: NodeFacts) -> EngineCommand:
        require_clean(spec, self.check_spec(spec))
        if build is None:
            raise ConfigError(
                f"runtime {spec.runtime_id!r}: no build of llama.cpp is installed",
                hint="llmgw engine install llamacpp, or set build to the path of a llama-server of your own",
                code="engine_build_missing",
            )
        executable = str(build.executable)
        argv = (
            executable,
            *("--host", spec.host, "--port", str(spec.port)),
            *("--model", str(spec.weights), "--alias", spec.served_models[0]),
            *("--api-key-file", KEY_FILE),
            *_context(spec),
            *("--threads", str(_threads(spec, facts))),
            *_devices(spec),
            *_modes(spec),
            *("--metrics", "--no-webui", "--offline"),
            *spec.args,
        )
        return EngineCommand(
            argv=argv,
            environment=_environment(spec, build),
            read_only_paths=_read_only(spec, executable),
            read_write_paths=(str(spec.home),),
            gguf_files=_models(spec),
            # Vulkan and CUDA drivers compile shaders at run time; the CPU code does not.
            allow_jit=bool(spec.devices),
        )

    def health_probe(self, spec: EngineSpec) -> HealthProbe:
        return HealthProbe("/health")

    def read_health(self, status: int, body: bytes) -> Health:
        return read_server_health(status)

    def read_progress(self, metrics: str) -> Progress:
        samples = read_samples(metrics)
        counted = [samples.get(f"llamacpp:{name}_total") for name in ("prompt_tokens", "tokens_predicted")]
        tokens = [value for value in counted if value is not None]
        return Progress(
            running=samples.get("llamacpp:requests_processing"),
            waiting=samples.get("llamacpp:requests_deferred"),
            tokens_total=sum(tokens) if tokens else None,
            steps_total=samples.get("llamacpp:n_decode_total"),
        )


def _context(spec: EngineSpec) -> tuple[str, ...]:
    slots = ("--parallel", str(spec.max_concurrency))
    if spec.context_length:
        return (*slots, "--ctx-size", str(spec.context_length * spec.max_concurrency), "--no-kv-unified")
    return (*slots, "--kv-unified")


def _threads(spec: EngineSpec, facts: NodeFacts) -> int:
    wished = spec.options.get("threads")
    if isinstance(wished, int):
        return wished
    cores = max(1, facts.cpu_count)
    return min(cores, _HOST_THREADS_WITH_GPU) if spec.devices else cores


def _devices(spec: EngineSpec) -> tuple[str, ...]:
    if not spec.devices:
        return ("--device", "none")
    return ("--n-gpu-layers", str(spec.options.get("gpuLayers", 999)))


def _modes(spec: EngineSpec) -> tuple[str, ...]:
    words: list[str] = []
    for option, flag in (("embeddings", "--embeddings"), ("reranking", "--reranking")):
        if spec.options.get(option) is True:
            words.append(flag)
    for option, flag in (("pooling", "--pooling"), ("mmproj", "--mmproj")):
        value = spec.options.get(option)
        if isinstance(value, str):
            words.extend((flag, value))
    if adapters := read_scaled_lora(spec):
        words.extend(("--lora-scaled", ",".join(f"{path}:{scale}" for path, scale in adapters)))
    return tuple(words)


def _environment(spec: EngineSpec, build: Build) -> tuple[tuple[str, str], ...]:
    """Later ones win: the build's, our defaults, the operator's, and what nobody may change."""
    defaults = {} if spec.devices else {"GOMP_SPINCOUNT": "1000"}
    ours = {
        "HOME": str(spec.home),
        "XDG_CACHE_HOME": str(spec.home / ".cache"),
        # Empty hides every card from a CUDA build: a runtime without devices must not even make a context on one.
        "CUDA_VISIBLE_DEVICES": ",".join(spec.devices),
    }
    return tuple({**dict(build.environment), **defaults, **dict(spec.env), **ours}.items())


def _read_only(spec: EngineSpec, executable: str) -> tuple[str, ...]:
    folder = executable.rpartition("/")[0] or "/"
    parts = [str(part) for part in model_parts(spec.weights)] if spec.weights is not None else []
    return (folder, *parts, *_models(spec)[1:])


def _models(spec: EngineSpec) -> tuple[str, ...]:
    """The weights, their projector and their adapters."""
    projector = spec.options.get("mmproj")
    projectors = [projector] if isinstance(projector, str) else []
    return (str(spec.weights), *projectors, *(path for path, _ in read_scaled_lora(spec)))
