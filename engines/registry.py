"""The one table of engines: name -> adapter."""

import difflib

from core.errors import NotFoundError
from engines.adapter import EngineAdapter
from engines.adapters.comfyui import ComfyUiAdapter
from engines.adapters.command import CommandAdapter
from engines.adapters.container import ContainerAdapter
from engines.adapters.llamacpp import LlamaCppAdapter
from engines.adapters.sglang import SglangAdapter
from engines.adapters.sim import SimAdapter
from engines.adapters.trtllm import TrtLlmAdapter
from engines.adapters.vllm import VllmAdapter

_ADAPTERS: dict[str, EngineAdapter] = {
    adapter.name: adapter
    for adapter in (
        LlamaCppAdapter(),
        VllmAdapter(),
        SglangAdapter(),
        TrtLlmAdapter(),
        ComfyUiAdapter(),
        SimAdapter(),
        CommandAdapter(),
        ContainerAdapter(),
    )
}


class UnknownEngine(NotFoundError):
    """No adapter has this name."""

    code = "engine_unknown"


def names() -> list[str]:
    """Every engine that there is, sorted."""
    return sorted(_ADAPTERS)


def get_adapter(name: str) -> EngineAdapter:
    """Raises: UnknownEngine, with the nearest name."""
    adapter = _ADAPTERS.get(name)
    if adapter is None:
        near = difflib.get_close_matches(name, _ADAPTERS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"engines: {', '.join(names())}"
        raise UnknownEngine(f"there is no engine {name[:60]!r}", hint=hint)
    return adapter
