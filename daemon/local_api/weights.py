"""`/v1/weights` and `/v1/weights/prune`: what fetches left here, and what may go of it."""

import contextlib
from pathlib import Path

import falcon
import falcon.asgi
import msgspec

from core.errors import LlmgwError
from core.message import Message
from core.weights import PruneWeightsRequest, RemovedWeights, StoredWeights, WeightsList
from daemon.local_api.access import Role
from daemon.local_api.body import read_body
from daemon.node import Node
from daemon.runtimes.prepare import weights_directory
from engines.stored import StoredUnit, list_units, remove_unit, unused_units
from engines.weights import resolve, size_bytes


class _Weights:
    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def _folder(self) -> Path:
        return weights_directory(self._node.config_use.loaded.config, self._node.preparer.layout)

    def _used(self) -> dict[str, Path]:
        """Runtime -> where its weights lie; also of runtimes that do not run."""
        used: dict[str, Path] = {}
        for runtime_id, runtime in self._node.config_use.loaded.config.runtimes.items():
            if runtime.weights:
                with contextlib.suppress(LlmgwError):
                    path = resolve(runtime.weights, self._folder)
                    if path is not None:
                        used[runtime_id] = path
        return used

    def _describe(self, unit: StoredUnit) -> StoredWeights:
        users = sorted(runtime for runtime, path in self._used().items() if unit.holds(path))
        return StoredWeights(
            path=str(unit.path), kind=unit.kind, name=unit.name, size_bytes=size_bytes(unit.path), used_by=users
        )


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
        for unit in unused_units(list_units(self._folder), self._used().values()):
            described = self._describe(unit)
            if not request.apply or remove_unit(unit):
                removed.append(described)
        _answer(resp, RemovedWeights(weights=removed))


def _answer(resp: falcon.asgi.Response, message: Message) -> None:
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(message)
