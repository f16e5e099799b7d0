"""The contract that every engine adapter meets: pure answers about one engine, no effects.

The daemon asks an adapter for a command, puts it into a unit, and then asks the adapter how to read what the
engine says. One file per engine in `engines/adapters/`, listed in `engines/registry.py`; one contract suite.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from core.hardware import Card
from engines.lora_api import LoraApi


class Health(StrEnum):
    """What one health answer means."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class Lora(StrEnum):
    """When an engine can take LoRA adapters."""

    NEVER = "never"
    AT_START = "at-start"
    AT_RUN_TIME = "at-run-time"
    """At its start too."""


@dataclass(frozen=True, slots=True)
class Build:
    """One installed variant of an engine."""

    engine: str
    name: str
    """For instance `b10068-pypi-vulkan`: also the name of its folder."""
    version: str
    executable: Path
    environment: tuple[tuple[str, str], ...] = ()
    folder: Path | None = None
    """The engine's own source tree, where it is no package of the executable's environment (ComfyUI)."""
    takes_uuids: bool = True
    """Whether it reads uuids in `CUDA_VISIBLE_DEVICES`; some builds read whole numbers only (engine-check knows)."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What an adapter may know of the machine."""

    cpu_count: int
    memory_total_mib: int
    cards: tuple[Card, ...] = ()


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where this process stands among those that serve one model together, and where they meet."""

    rank: int
    """0 is the head: it alone answers requests."""
    size: int
    """How many processes (nodes) there are."""
    address: str
    """Where the head listens for the others."""
    port: int
    own_address: str = ""
    """This node's address on the fabric that the group uses; empty: the engine finds out."""


@dataclass(frozen=True, slots=True)
class KvEvents:
    """Where an engine tells of its prefix cache: addresses of ZeroMQ, for who may enter their directory."""

    endpoint: str
    """It publishes there: `[topic, sequence number, batch]` for every step that stored or removed blocks."""
    replay: str
    """It answers there who sends a sequence number: every batch from that one on that it still has."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What one runtime should serve; everything that its command line depends on."""

    runtime_id: str
    engine: str
    served_models: tuple[str, ...]
    """The ids under which clients ask; the first is the engine's own name for the model."""
    port: int
    host: str = "127.0.0.1"
    weights: Path | None = None
    context_length: int = 0
    """Tokens per request; 0 leaves it to the model."""
    max_concurrency: int = 1
    args: tuple[str, ...] = ()
    """What the operator adds, already judged by the argument policy."""
    env: tuple[tuple[str, str], ...] = ()
    command: tuple[str, ...] = ()
    """The whole command, for `engine: command` only."""
    health_url: str = ""
    devices: tuple[str, ...] = ()
    """Full GPU uuids; empty computes on the CPU."""
    home: Path = field(default_factory=lambda: Path("/nonexistent"))
    sockets: Path = field(default_factory=lambda: Path("/nonexistent"))
    """A directory of its own with a short path, for the unix sockets that others than clients read."""
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Engine-specific settings from the config (`runtimes.<id>.options`), validated by the adapter."""
    adapter_slots: int = 0
    """LoRA adapters that it must be able to hold beside those of its options, loaded while it serves; 0: none."""
    adapter_paths: tuple[str, ...] = ()
    """Where those lie that are known by now."""
    rendezvous: Rendezvous | None = None
    """Set for a member of a group that serves one model on several nodes."""


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """How to start the engine. `KEY_FILE` in a word stands for the path of the file with its key."""

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    read_only_paths: tuple[str, ...] = ()
    read_write_paths: tuple[str, ...] = ()
    allow_jit: bool = True
    folders: tuple[str, ...] = ()
    """Made before the start, below the runtime's home."""
    files: tuple[tuple[str, str], ...] = ()
    """Paths below the home and the texts that are written there before the start."""
    gguf_files: tuple[str, ...] = ()
    """Files that the engine reads as GGUF: looked at before the start."""
    is_container: bool = False
    """The command makes the sandbox, and needs the daemon's own rights for it: its unit has no user and no sandbox."""


KEY_FILE = "\x00key-file\x00"
"""Placeholder in `EngineCommand.argv`; NUL cannot occur in a real argument."""

RUN_AS = "\x00run-as\x00"
"""Likewise, for `UID:GID` of the account that engines run as."""


@dataclass(frozen=True, slots=True)
class HealthProbe:
    """How to ask the engine whether it serves. Asked with the engine's key."""

    path: str
    """Path on the runtime's port, or a whole URL when the operator gave one; empty: it serves nothing (a worker of a
    group), and is as well as its process."""
    timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Counters that tell whether the engine moves; None where the engine does not say."""

    running: float | None = None
    waiting: float | None = None
    tokens_total: float | None = None
    steps_total: float | None = None
    """Passes through the model, where the engine counts its tokens only at the end of an answer."""


class GateKind(StrEnum):
    """Which front stands before an engine that demands no key (`engines/gates`)."""

    GENERIC = "generic"
    """A key, and the adapter's `routes`."""
    COMFYUI = "comfyui"
    """Knows ComfyUI's API and keeps its callers apart."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The front of an engine, a process of its own on the runtime's port. The engine gets another port."""

    kind: GateKind
    engine_health: str = "/health"
    """What the gate asks the engine, to know whether it serves."""


class EngineAdapter(Protocol):
    """Everything that llmgw knows about one engine. Pure: no file, socket or process is touched."""

    name: str
    needs_weights: bool
    needs_build: bool
    routes: frozenset[str]
    """Paths that the gateway may ask of this engine (`/v1/chat/completions`, …)."""
    usage_when_asked: bool
    """Whether its streams say how many tokens they were only when `stream_options.include_usage` asks for it. False
    also for an engine that may not know the field: its streams are counted by their events."""
    demands_key: bool
    """Whether the engine itself refuses requests without its key."""
    gate: Gate | None
    """What stands before an engine that does not; the key is the gate's then."""
    works_on: bool
    """Whether it goes on working after it has answered a request: then its counters say whether it is busy."""
    overhead_mib: int | None
    """Host memory beside the weights, before anything was measured; None: it cannot be guessed."""
    lora: Lora
    lora_api: LoraApi | None
    """How adapters are loaded while it serves; None unless `lora` is `AT_RUN_TIME`."""
    multi_node: bool
    """Whether a model may be spread over several nodes (`EngineSpec.rendezvous`)."""

    def check_spec(self, spec: EngineSpec) -> list[str]:
        """Everything wrong with the spec, as sentences; empty when it can be started."""
        ...

    def build_command(self, spec: EngineSpec, build: Build | None, facts: NodeFacts) -> EngineCommand:
        """The command line and environment. Raises `ConfigError` for what `check_spec` would have named."""
        ...

    def health_probe(self, spec: EngineSpec) -> HealthProbe: ...

    def read_health(self, status: int, body: bytes) -> Health:
        """What an HTTP answer to the probe means. (Refused or timed out counts as loading; the daemon decides.)"""
        ...

    def read_progress(self, metrics: str) -> Progress:
        """Counters from the engine's Prometheus text."""
        ...

    @property
    def metrics_path(self) -> str | None:
        """Where the engine serves Prometheus text, or None."""
        ...


def is_keyed(adapter: EngineAdapter) -> bool:
    """Whether a request to the runtime needs its key, whoever demands it."""
    return adapter.demands_key or adapter.gate is not None


def tells_callers_apart(adapter: EngineAdapter) -> bool:
    """Whether it must be told for whom a request is."""
    return adapter.gate is not None and adapter.gate.kind is GateKind.COMFYUI
