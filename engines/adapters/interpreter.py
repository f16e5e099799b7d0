"""What the engines that are Python programs have in common: whose interpreter, which devices, where they may write.

A build of such an engine is a virtual environment, and its executable is the environment's `bin/python` (or any
program beside it, such as `bin/vllm`, when an operator names his own). Pure.
"""

from pathlib import Path

from core.errors import ConfigError
from engines.adapter import KEY_FILE, Build, EngineSpec, NodeFacts
from engines.options import Option

LAUNCHERS = Path(__file__).resolve().parents[1] / "launchers"

PARALLEL_OPTIONS = {
    "tensorParallel": Option(int, minimum=1, maximum=1024),
    "pipelineParallel": Option(int, minimum=1, maximum=1024),
    "memoryFraction": Option(float, minimum=0.05, maximum=0.98),
    "dtype": Option(str, choices=("auto", "half", "float16", "bfloat16", "float", "float32")),
    "quantization": Option(str),
    "threads": Option(int, minimum=1, maximum=1024),
}
"""Options of every engine that spreads a model over cards."""


def require_build(spec: EngineSpec, build: Build | None) -> Build:
    """Raises: ConfigError when there is none."""
    if build is None:
        raise ConfigError(
            f"runtime {spec.runtime_id!r}: no build of {spec.engine} is installed",
            hint=f"llmgw engine install {spec.engine}, or set build to the python of an environment of your own",
            code="engine_build_missing",
        )
    return build


def python_of(build: Build) -> Path:
    """The interpreter of the build's environment."""
    executable = build.executable
    return executable if executable.name.startswith("python") else executable.with_name("python")


def tree_of(build: Build) -> Path:
    """The engine's own source tree; beside the environment's `bin` where nothing says otherwise."""
    return build.folder or build.executable.parent.parent


def launch_with_key(build: Build, way: str, module: str) -> tuple[str, ...]:
    """The first words of a command that hands over the key inside the process; see `engines/launchers`."""
    return (str(python_of(build)), str(LAUNCHERS / "with_key.py"), KEY_FILE, way, module)


def readable_paths(spec: EngineSpec, build: Build) -> tuple[str, ...]:
    """The environment, the launcher and the weights."""
    environment = build.executable.parent.parent
    return (str(environment), str(LAUNCHERS), str(spec.weights))


def build_environment(
    spec: EngineSpec, build: Build, facts: NodeFacts, defaults: dict[str, str]
) -> tuple[tuple[str, str], ...]:
    """Later ones win: the build's, our defaults, the operator's, and what nobody may change."""
    general = {
        # Compilers and helpers that come with the environment (ninja, ptxas) are looked for in PATH.
        "PATH": f"{build.executable.parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    threads = spec.options.get("threads")
    if isinstance(threads, int):
        general["OMP_NUM_THREADS"] = str(threads)
    ours = {
        "HOME": str(spec.home),
        "XDG_CACHE_HOME": str(spec.home / ".cache"),
        # Weights are placed by llmgw: an engine that asks a model hub got a wrong path, and must say so.
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        **visible_devices(spec, build, facts),
    }
    return tuple({**dict(build.environment), **general, **defaults, **dict(spec.env), **ours}.items())


def visible_devices(spec: EngineSpec, build: Build, facts: NodeFacts) -> dict[str, str]:
    """Which cards the process sees. Raises: ConfigError when a build wants numbers and the node does not know them."""
    if build.takes_uuids or not spec.devices:
        return {"CUDA_VISIBLE_DEVICES": ",".join(spec.devices)}
    by_uuid = {card.uuid: card.index for card in facts.cards if card.index is not None and not card.parent}
    unknown = [uuid for uuid in spec.devices if uuid not in by_uuid]
    if unknown:
        raise ConfigError(
            f"runtime {spec.runtime_id!r}: {build.name} takes cards by number, and {unknown[0]} has none",
            hint="instances of a card in MIG mode need a build that takes uuids",
            code="device_has_no_index",
        )
    numbers = ",".join(str(by_uuid[uuid]) for uuid in spec.devices)
    # Without it CUDA counts the fastest card first, and nvidia-smi by slot.
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": numbers}


def parallel_sizes(spec: EngineSpec) -> tuple[int, int]:
    """(tensor, pipeline): as configured, else all cards of a node in one tensor group, and a stage for each node."""
    nodes = spec.rendezvous.size if spec.rendezvous else 1
    pipeline = spec.options.get("pipelineParallel")
    tensor = spec.options.get("tensorParallel")
    cards = max(1, len(spec.devices)) * nodes
    if not isinstance(tensor, int) or isinstance(tensor, bool):
        stages = pipeline if isinstance(pipeline, int) else nodes
        return max(1, cards // stages), stages
    return tensor, pipeline if isinstance(pipeline, int) else max(1, cards // tensor)


def check_parallel(spec: EngineSpec) -> list[str]:
    """Whether the wished groups use exactly the cards that the runtime gets."""
    if any(isinstance(spec.options.get(name), bool) for name in ("tensorParallel", "pipelineParallel")):
        return []  # said by the check of the options
    nodes = spec.rendezvous.size if spec.rendezvous else 1
    tensor, pipeline = parallel_sizes(spec)
    cards = max(1, len(spec.devices)) * nodes
    if not spec.devices and tensor * pipeline == nodes:
        return []
    if tensor * pipeline != cards:
        return [
            f"tensorParallel {tensor} times pipelineParallel {pipeline} is {tensor * pipeline},"
            f" and the runtime has {cards} cards"
        ]
    return []


def option_flags(spec: EngineSpec, flags: dict[str, str]) -> tuple[str, ...]:
    """Set options as `FLAG VALUE`; a true one as its flag alone."""
    words: list[str] = []
    for name, flag in flags.items():
        value = spec.options.get(name)
        if isinstance(value, bool):
            words.extend([flag] if value else [])
        elif value is not None and value != "":
            words.append(f"{flag}={value}")
    return tuple(words)
