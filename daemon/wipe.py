"""Removes what llmgw keeps on this machine: builds, homes and measures; weights and the config only when asked.

The plan is computed first and shown; carrying it out stops every engine, then removes exactly what the plan names.
A weights folder that an operator chose (`paths.weights`) is emptied of what we fetched only, never removed whole.
"""

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from core.config.folders import engines_directory, weights_directory
from core.errors import ConflictError
from core.files import storage_error
from core.runtime import AT_REST
from core.wipe import WipeItem, WipePlan, WipeRequest
from daemon.node import Node

_STOP_S = 600.0
_FETCHED = {"package": "weights from packages", "https": "weights from the web", "hf": "models of Hugging Face"}
"""Folders of the weights that we made -> what is in them."""


class WipeNotConfirmed(ConflictError):
    """The name that was typed is not this node's."""

    code = "wipe_not_confirmed"


@dataclass(frozen=True, slots=True)
class _Candidate:
    path: Path
    what: str


def plan_wipe(node: Node, *, models: bool, everything: bool) -> WipePlan:
    """What a wipe would remove now; only what exists."""
    return WipePlan(
        node=node.preparer.node,
        items=[
            WipeItem(path=str(candidate.path), what=candidate.what, size_bytes=size_bytes(candidate.path))
            for candidate in _candidates(node, models=models or everything, config=everything)
            if candidate.path.exists()
        ],
        stops=sorted(i for i, c in node.controllers.items() if c.state not in AT_REST),
    )


async def carry_out(node: Node, request: WipeRequest) -> WipePlan:
    """Stop everything, remove what the plan names, and say what went.

    Serving stays off, so that nothing is started from a half-removed state. Raises: WipeNotConfirmed, StorageError.
    """
    if request.confirm != node.preparer.node:
        raise WipeNotConfirmed(f"this node is called {node.preparer.node}, not {request.confirm!r}", hint="llmgw wipe")
    plan = plan_wipe(node, models=request.models, everything=request.all)
    node.set_serving(False)
    async with asyncio.timeout(_STOP_S):
        for controller in list(node.controllers.values()):
            await controller.wait_until(lambda c: c.state in AT_REST)
    await asyncio.to_thread(_remove_all, [Path(item.path) for item in plan.items])
    node.keys.load()
    await node.publish()
    return plan


def _candidates(node: Node, *, models: bool, config: bool) -> Iterator[_Candidate]:
    use, layout = node.config_use.loaded, node.preparer.layout
    engines = engines_directory(use.config, layout)
    if engines == layout.engines:
        yield _Candidate(engines, "engine builds")
    yield _Candidate(layout.homes, "engines' homes and caches")
    yield _Candidate(layout.gates, "what gates know of their callers' work")
    yield _Candidate(layout.keys, "engines' keys")
    yield _Candidate(layout.state / "estimates.json", "measured sizes")
    yield _Candidate(layout.state / "hardware-cleared.json", "cleared errors of cards")
    yield _Candidate(layout.peer_names, "addresses of other nodes")
    yield _Candidate(layout.usage, "what requests have cost")
    if models:
        for folder, what in _FETCHED.items():
            yield _Candidate(weights_directory(use.config, layout) / folder, what)
    if config:
        yield _Candidate(layout.gateway_state, "the gateway's state")
        yield _Candidate(layout.client_keys, "clients' keys")
        yield _Candidate(layout.backend_keys, "keys for backends")
        yield _Candidate(layout.last_good_config, "the last good config")
        yield _Candidate(layout.config, "the config")
        yield _Candidate(layout.config.with_name(f"{layout.config.name}.previous"), "the previous config")


def size_bytes(path: Path) -> int:
    """Bytes on disk of a file or a tree; links are not followed."""
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue  # it went while we looked
    return total


def _remove_all(paths: list[Path]) -> None:
    for path in paths:
        try:
            # A disk of the operator's that is mounted there is emptied: its folder cannot go.
            for thing in path.iterdir() if path.is_mount() else (path,):
                if thing.is_dir() and not thing.is_symlink():
                    shutil.rmtree(thing)
                else:
                    thing.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(path, error) from error
