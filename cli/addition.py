"""What adding a model changes in the config. Pure: a request and the config as it is make a plan.

Adding is additive and idempotent: the same request twice changes nothing; a model of that id with other weights is a
conflict that only the operator can decide.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from core.config.schema import Config, Model, Runtime
from core.config.write import Document
from core.errors import ConflictError, UsageError

SectionType = TypeVar("SectionType", list[object], dict[str, dict[str, object]])

_NOT_IN_A_RUNTIME_ID = re.compile(r"[^A-Za-z0-9._:@/+-]+")
_QUANTIZED = re.compile(r"[-._](i?q\d\w*|f16|f32|bf16)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Request:
    """What the operator asked for. None: they said nothing about it."""

    model_id: str
    engine: str
    source: str = ""
    """What the runtime's `weights` become; empty for an engine that has none."""
    context_length: int | None = None
    keep_warm: bool | None = None
    port: int | None = None
    memory_gb: float | None = None
    gpus: int | tuple[str, ...] | None = None
    """How many cards, or which."""
    max_concurrency: int | None = None
    kind: str | None = None
    options: Mapping[str, bool] | None = None
    """Settings of the engine's adapter."""
    args: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Addition:
    """What to write: keys of one entry of `models` and of one of `runtimes`. Only what differs from the defaults."""

    model_id: str
    runtime_id: str
    model: Mapping[str, object]
    runtime: Mapping[str, object]
    changes: bool
    """False: the config says all of this already."""


class ModelExists(ConflictError):
    """The id is taken by something else."""

    code = "model_exists"


def plan_addition(request: Request, config: Config) -> Addition:
    """Raises: UsageError, ModelExists."""
    runtime_id = _runtime_id(request, config)
    present = config.runtimes.get(runtime_id)
    known = next((model for model in config.models if model.id == request.model_id), None)
    if known is not None and present is not None:
        _require_same(request, runtime_id, present)
    elif present is not None and not _is_same(request, present):
        raise ModelExists(
            f"runtime '{runtime_id}' exists already and serves something else", hint="choose another --id"
        )
    if request.model_id in config.aliases:
        raise ModelExists(
            f"'{request.model_id}' is an alias of '{config.aliases[request.model_id]}'", hint="choose another --id"
        )
    model = _model_keys(request, runtime_id, known)
    runtime = _runtime_keys(request, present)
    return Addition(request.model_id, runtime_id, model, runtime, changes=bool(model or runtime))


def apply_addition(document: Document, addition: Addition) -> None:
    """Put the addition into the config's document; everything that stands there already stays as it is."""
    if addition.model:
        models = _section(document, "models", [])
        models.append({key: _escaped(value) for key, value in addition.model.items()})
    if addition.runtime:
        runtimes = _section(document, "runtimes", {})
        section = runtimes.setdefault(addition.runtime_id, {})
        for key, value in addition.runtime.items():
            section[key] = _escaped(value)


def _section(document: Document, name: str, empty: SectionType) -> SectionType:
    """The section as it stands, or a new one; a key with nothing behind it counts as none."""
    if document.get(name) is None:
        document[name] = empty
    section = document[name]
    if not isinstance(section, type(empty)):
        raise UsageError(f"{name} has another shape than it should in this config", hint="llmgw config check")
    return section


def model_id_of(path: str) -> str:
    """The id for a weights file: its name in lower case, without the ending and the quantization."""
    stem = path.partition("#")[0].rstrip("/").rpartition("/")[2]
    if path.startswith("hf:"):
        repository, _, file = stem.partition(":")
        stem = file or repository.partition("@")[0]
    stem = re.sub(r"\.(gguf|safetensors|bin)$", "", stem, flags=re.IGNORECASE)
    stem = re.sub(r"-\d{5}-of-\d{5}$", "", stem)
    short = _QUANTIZED.sub("", stem)
    return _NOT_IN_A_RUNTIME_ID.sub("-", short.lower()).strip("-.")


def _runtime_id(request: Request, config: Config) -> str:
    """The runtime of a model that exists, else one named after the model."""
    for model in config.models:
        if model.id == request.model_id:
            return _first_runtime(model)
    runtime_id = _NOT_IN_A_RUNTIME_ID.sub("-", request.model_id).strip("-._:@/+")[:128]
    if not runtime_id:
        raise UsageError(f"'{request.model_id}' is no id for a model", hint="give one with --id")
    return runtime_id


def _first_runtime(model: Model) -> str:
    runtimes = model.runtimes()
    if not runtimes:
        names = ", ".join(place.name for place in model.places())
        raise ModelExists(
            f"model '{model.id}' exists already and is served by {names}",
            hint="add it under another name with --id, or change the config and run llmgw reload",
        )
    return runtimes[0]


def _model_keys(request: Request, runtime_id: str, known: Model | None) -> dict[str, object]:
    if known is None:
        kind = {} if request.kind in (None, Model(id="-").kind) else {"kind": request.kind}
        return {"id": request.model_id, "runtime": runtime_id, **kind}
    if request.kind not in (None, known.kind):
        raise ModelExists(
            f"model '{known.id}' exists already, of kind {known.kind}",
            hint="change models in the config, and llmgw reload",
        )
    return {}


def _is_same(request: Request, present: Runtime) -> bool:
    if present.engine != request.engine or present.weights != request.source:
        return False
    return request.command is None or tuple(present.command) == request.command


def _require_same(request: Request, runtime_id: str, present: Runtime) -> None:
    if not _is_same(request, present):
        serves = present.weights or " ".join(present.command) or present.engine
        raise ModelExists(
            f"model '{request.model_id}' exists already: runtime '{runtime_id}' serves {serves}",
            hint="add it under another name with --id, or change the config and run llmgw reload",
        )


def _runtime_keys(request: Request, present: Runtime | None) -> dict[str, object]:
    """The keys to write: all that were asked for and are not so already."""
    base = present if present is not None else Runtime()
    wanted: dict[str, object] = {"engine": request.engine, "weights": request.source}
    asked = {
        "command": None if request.command is None else list(request.command),
        "args": None if request.args is None else list(request.args),
        "port": request.port,
        "memoryGb": request.memory_gb,
        "gpus": list(request.gpus) if isinstance(request.gpus, tuple) else request.gpus,
        "maxConcurrency": request.max_concurrency,
        "contextLength": request.context_length,
        "keepWarm": request.keep_warm,
    }
    wanted.update({key: value for key, value in asked.items() if value is not None})
    if request.options:
        wanted["options"] = {**base.options, **request.options}
    now: dict[str, object] = {
        "engine": base.engine,
        "weights": base.weights,
        "command": base.command,
        "args": base.args,
        "port": base.port,
        "memoryGb": base.memory_gb,
        "gpus": base.gpus,
        "maxConcurrency": base.max_concurrency,
        "contextLength": base.context_length,
        "keepWarm": base.keep_warm,
        "options": base.options,
    }
    keys = {key: value for key, value in wanted.items() if value != now[key]}
    if present is None:
        keys.setdefault("engine", request.engine)  # an entry says its engine, even when that is the default
        keys.setdefault("keepWarm", request.keep_warm is not False)
    return keys


def _escaped(value: object) -> object:
    """A value as config text: `$` is doubled, so that a path with `${` in it is not taken for a reference."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return value


def describe_model(model: Model, config: Config) -> dict[str, object]:
    """One entry of `llmgw model list --json`. `runtime` and `backend` are the first of each, or empty."""
    places = model.places()
    runtime_id = next((place.runtime for place in places if place.runtime), "")
    runtime = config.runtimes.get(runtime_id)
    return {
        "id": model.id,
        "kind": model.kind,
        "runtime": runtime_id,
        "backend": next((place.backend for place in places if place.backend), ""),
        "servedBy": [place.runtime or place.backend for place in places],
        "engine": runtime.engine if runtime else "",
        "weights": model.adapter or (runtime.weights if runtime else ""),
        "keepWarm": bool(runtime and runtime.keep_warm),
        "advertise": model.advertise,
    }
