"""From what a person typed to a request: preset, source, path, or the bare name of a model. Pure but for stat."""

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

from cli.addition import Request, model_id_of
from core.errors import UsageError
from engines.presets import Preset, load_presets
from engines.registry import get_adapter
from engines.sources import HubSource, parse_source

DEFAULT_ENGINE = "llamacpp"
FOLDER_ENGINE = "vllm"
"""What serves a folder of safetensors, which is what most models on the hub are."""

_MUST_BE_TOLD = ("llamacpp", "vllm", "sglang")
"""Engines that make embeddings only where their options say so."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The words of `llmgw model add` and `llmgw up --model`, as they came."""

    source: str
    model_id: str = ""
    engine: str = ""
    context: int | None = None
    keep_warm: bool | None = None
    port: int | None = None
    memory_gb: float | None = None
    gpus: str = ""
    max_concurrency: int | None = None
    kind: str | None = None
    args: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None


def resolve(wish: Wish) -> Request:
    """Raises: UsageError, UnknownEngine, SourceInvalid."""
    preset = load_presets().get(wish.source)
    engine = _engine(wish, preset)
    if engine == "container":
        raise UsageError("a container's image is set in the config", hint="runtimes.ID.engine and .options.image")
    if wish.command is not None and engine != "command":
        raise UsageError(f"--command is for --engine command, not for {engine}")
    source = _source(wish, preset, engine)
    return Request(
        model_id=wish.model_id or _model_id(wish, preset, source),
        engine=engine,
        source=source,
        context_length=wish.context if wish.context is not None else (preset.context_length if preset else None),
        keep_warm=wish.keep_warm,
        port=wish.port,
        memory_gb=wish.memory_gb,
        gpus=_gpus(wish.gpus),
        max_concurrency=wish.max_concurrency,
        kind=wish.kind,
        options={"embeddings": True} if wish.kind == "embedding" and engine in _MUST_BE_TOLD else None,
        args=wish.args if wish.args is not None or preset is None else tuple(preset.args) or None,
        command=wish.command,
    )


def _engine(wish: Wish, preset: Preset | None) -> str:
    engine = wish.engine or ("command" if wish.command is not None else "") or (preset.engine if preset else "")
    return get_adapter(engine or (FOLDER_ENGINE if _is_folder(wish.source) else DEFAULT_ENGINE)).name


def _is_folder(source: str) -> bool:
    """Whether the weights are a folder with a `config.json`, as transformers keeps them, and no GGUF file."""
    if source.startswith("hf:"):
        hub = parse_source(source)
        # A repository of GGUF files says so in its name, by a custom that nobody breaks.
        return isinstance(hub, HubSource) and not hub.file and not hub.repo.lower().endswith("gguf")
    return (Path(source).expanduser() / "config.json").is_file()


def _gpus(text: str) -> int | tuple[str, ...] | None:
    """`2`: so many cards; `GPU-…,GPU-…`: these."""
    if not text:
        return None
    if text.isascii() and text.isdecimal():
        return int(text)
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _source(wish: Wish, preset: Preset | None, engine: str) -> str:
    """What `weights` becomes: a source, an absolute path, or nothing."""
    if preset is not None:
        return preset.source
    if not get_adapter(engine).needs_weights:
        return ""
    scheme, colon, _ = wish.source.partition(":")
    if colon and scheme.isalnum():
        parse_source(wish.source)
        return wish.source
    path = os.path.abspath(Path(wish.source).expanduser())  # without the .. that a config may not have
    if wish.source and (os.path.exists(path) or "/" in wish.source or wish.source.lower().endswith(".gguf")):
        parse_source(path)
        return path
    near = difflib.get_close_matches(wish.source, load_presets(), n=1)
    known = ", ".join(sorted(load_presets()))
    raise UsageError(
        f"'{wish.source}' is no preset, no source and no file here",
        hint=f"did you mean {near[0]}?" if near else f"presets: {known}; or the path of a file",
        code="unknown_source",
    )


def _model_id(wish: Wish, preset: Preset | None, source: str) -> str:
    if preset is not None:
        return preset.id
    return model_id_of(source) if source else wish.source
