"""From the config to one runtime's spec, and to the hash that tells whether it must be restarted. Pure."""

import hashlib
import json
from pathlib import Path

import msgspec

from core.config.backend import ModelTarget
from core.config.schema import Config, Model, Runtime
from engines.adapter import EngineSpec

_LIVE_FIELDS = frozenset(
    {
        *("enabled", "keepWarm", "preferredWarm", "priority", "idleStopMs"),
        *("startupTimeoutMs", "healthUrl", "warmup", "watchdog"),
        *("maxQueuedRequests", "queueTimeoutMs", "queueRetryAfterSeconds"),
        *("interactiveReservedSlots", "requestStartupWaitMs", "firstByteTimeoutMs", "betweenBytesTimeoutMs"),
    }
)
"""Settings that take effect without a restart, so they are no part of the hash."""

_TOLD_NO_SLOTS = frozenset({"command", "container"})
"""Engines whose command does not depend on `maxConcurrency`: for them it is a live field, too."""

_BASE_DEADLINE_S = 300.0
_DEADLINE_PER_GIB_S = 20.0


def served_models(config: Config, runtime_id: str) -> tuple[str, ...]:
    """The names under which the engine must know its model; the runtime's own id when no model uses it."""
    own = [model for model in config.models if not model.adapter]
    names = [_name(model, place) for model in own for place in model.places() if place.runtime == runtime_id]
    return tuple(dict.fromkeys(names)) or (runtime_id,)


def declared_adapters(config: Config, runtime_id: str) -> dict[str, str]:
    """The adapters that models of this runtime are: the engine's name for each -> the source of its weights."""
    return {
        _name(model, place): model.adapter
        for model in config.models
        for place in model.places()
        if place.runtime == runtime_id and model.adapter
    }


def _name(model: Model, place: ModelTarget) -> str:
    return place.upstream_model or model.id


def adapter_slots(config: Config, runtime_id: str) -> int:
    """How many of them its engine must be able to hold; 0: there are none, and no room is kept for any."""
    runtime = config.runtimes[runtime_id]
    if not declared_adapters(config, runtime_id) and runtime.options.get("runtimeLora") is not True:
        return 0
    return runtime.max_loaded_adapters


def spec_hash(config: Config, runtime_id: str) -> str:
    """16 hex digits over everything that the engine's command depends on. An allocated port is no part of it."""
    runtime = config.runtimes[runtime_id]
    fields = {k: v for k, v in msgspec.to_builtins(runtime).items() if k not in _LIVE_FIELDS}
    if runtime.engine in _TOLD_NO_SLOTS:
        del fields["maxConcurrency"]
    # Which adapters there are is not the engine's affair: they come and go while it runs.
    fields["maxLoadedAdapters"] = adapter_slots(config, runtime_id)
    fields["served"] = served_models(config, runtime_id)
    fields["user"] = config.engines.user
    own = config.engines.own_build(runtime.engine)
    if own is not None and not runtime.build:
        fields["own"] = msgspec.to_builtins(own)
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def start_deadline_s(runtime: Runtime, weights_bytes: int) -> float:
    """How long a start may take: as configured, else 5 minutes and 20 seconds for every GiB of weights."""
    if runtime.startup_timeout_ms is not None:
        return runtime.startup_timeout_ms / 1000
    return _BASE_DEADLINE_S + _DEADLINE_PER_GIB_S * weights_bytes / (1 << 30)


def engine_spec(config: Config, runtime_id: str, *, port: int, weights: Path | None, home: Path) -> EngineSpec:
    """What the adapter needs to know."""
    runtime = config.runtimes[runtime_id]
    return EngineSpec(
        runtime_id=runtime_id,
        engine=runtime.engine,
        served_models=served_models(config, runtime_id),
        port=port,
        weights=weights,
        context_length=runtime.context_length,
        max_concurrency=runtime.max_concurrency,
        args=tuple(runtime.args),
        env=tuple(runtime.env.items()),
        command=tuple(runtime.command),
        health_url=runtime.health_url,
        home=home,
        options=runtime.options,
        adapter_slots=adapter_slots(config, runtime_id),
    )
