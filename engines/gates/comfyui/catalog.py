"""ComfyUI's classes of nodes, asked for once in each life of it."""

import asyncio
from collections.abc import Mapping

import msgspec

from engines.gates.comfyui.engine import ComfyEngine
from engines.gates.comfyui.nodes import NodeClass, read_nodes, show_nodes


class NodeCatalog:
    """What `/object_info` says, judged. `forget` it when ComfyUI may have been started anew."""

    def __init__(self, engine: ComfyEngine, allowed: frozenset[str]) -> None:
        self._engine = engine
        self._allowed = allowed
        self._lock = asyncio.Lock()
        self._classes: Mapping[str, NodeClass] | None = None
        self._shown: Mapping[str, msgspec.Raw] = {}

    def forget(self) -> None:
        self._classes = None

    async def classes(self) -> Mapping[str, NodeClass]:
        """Raises: NodesUnreadable, and what `ComfyEngine` raises."""
        async with self._lock:
            known = self._classes
            if known is not None:
                return known
            told = await self._engine.read_object_info()
            # Hundreds of classes with their inputs: as much work as many requests, so not on the loop.
            classes, self._shown = await asyncio.to_thread(self._read, told)
            self._classes = classes
            return classes

    async def shown(self) -> Mapping[str, msgspec.Raw]:
        """`/object_info` as callers see it, by class."""
        await self.classes()
        return self._shown

    def _read(self, told: bytes) -> tuple[Mapping[str, NodeClass], Mapping[str, msgspec.Raw]]:
        classes = read_nodes(told, self._allowed)
        return classes, show_nodes(told, classes)
