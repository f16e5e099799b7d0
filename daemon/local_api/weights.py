"""`/v1/weights` and `/v1/weights/prune`: what fetches left here, and what may go of it."""

import contextlib
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import falcon
import falcon.asgi
import msgspec

from core.config.folders import weights_directory
from core.config.schema import Config
from core.errors import LlmgwError
from core.message import Message
from core.weights import PruneWeightsRequest, RemovedWeights, StoredWeights, WeightsList
from daemon.local_api.access import Role
from daemon.local_api.body import read_body
from daemon.node import Node
from daemon.runtimes.spec import declared_adapters
from engines.stored import StoredUnit, list_units, remove_unit, units_of, unused_units
from engines.weights import parse_source, resolve, size_bytes


def used_paths(config: Config, folder: Path) -> dict[str, list[Path]]:
    """Runtime -> where its weights and adapters lie, or would if they were whole; also of runtimes that do not run."""
    units, used = list_units(folder), dict[str, list[Path]]()
    for runtime_id, runtime in config.runtimes.items():
        for source in (runtime.weights, *declared_adapters(config, runtime_id).values()):
            with contextlib.suppress(LlmgwError):
                found = resolve(source, folder) if source else None
                made = [unit.path for unit in units_of(parse_source(source), units, folder)] if source else []
                used[runtime_id] = [*used.get(runtime_id, []), *made, *([found] if found is not None else [])]
    return used


def users_of(unit: StoredUnit, used: Mapping[str, list[Path]]) -> list[str]:
    """The runtimes with weights in the unit. Pure."""
    return sorted(runtime for runtime, paths in used.items() if any(unit.holds(path) for path in paths))


class _Weights:
    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def _folder(self) -> Path:
        return weights_directory(self._node.config_use.loaded.config, self._node.preparer.layout)

    def _describe(self, unit: StoredUnit) -> StoredWeights:
        users = users_of(unit, self._used())
        return StoredWeights(
            path=str(unit.path), kind=unit.kind, name=unit.name, size_bytes=size_bytes(unit.path), used_by=users
        )

    def _used(self) -> dict[str, list[Path]]:
        return used_paths(self._node.config_use.loaded.config, self._folder)


class Weights(_Weights):
    """Everything that was fetched."""

    role = Role.GATEWAY

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        _answer(resp, WeightsList(weights=[self._describe(unit) for unit in list_units(self._folder)]))


class WeightsPrune(_Weights):
    """Take away what no runtime of the config uses."""

    role = Role.ADMIN

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        request = await read_body(req, PruneWeightsRequest)
        removed = []
        for unit in unused_units(list_units(self._folder), chain(*self._used().values())):
            described = self._describe(unit)
            if not request.apply or remove_unit(unit):
                removed.append(described)
        _answer(resp, RemovedWeights(weights=removed))


def _answer(resp: falcon.asgi.Response, message: Message) -> None:
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(message)
