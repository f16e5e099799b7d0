"""Keeps the names of the cluster's other nodes resolved, for the firewall.

Every name is looked up off the loop and under a deadline: at the start, after a reload, and from time to time, sooner
while one fails. One that does not resolve hinders no other. What it meant last stays until it means something else,
over restarts too: a resolver that is away must not close a peer out. What leaves the config is forgotten.
"""

import asyncio
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from core.config.cluster import Cluster, peer_hosts
from core.errors import LlmgwError, UnavailableError
from core.files import StorageError
from core.firewall import PeerState
from core.log import EventLogger
from core.peers import Resolved, addresses_of, names_of, peer_addresses, read_resolved, sort_addresses, write_resolved
from core.tasks import Backoff
from daemon.hardware.blocking import Blocking, StillBlocked

_ANSWER_S = 5.0
_EVERY_S = 60.0
_AT_ONCE = 8

Lookup = Callable[[str], list[str]]
"""The addresses that a name means. May block. Raises: OSError, PeerUnresolved."""


class PeerUnresolved(UnavailableError):
    """The name of another node leads nowhere."""

    code = "peer_unresolved"


def look_up(name: str) -> list[str]:
    """Ask the system's resolver. Raises: PeerUnresolved."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise PeerUnresolved(f"{name} does not resolve: {getattr(error, 'strerror', None) or error}") from error
    addresses = sort_addresses(str(entry[4][0]) for entry in found)
    if not addresses:
        raise PeerUnresolved(f"{name} resolves to no address of another machine")
    return addresses


class Peers:
    """The other nodes' addresses, as far as they are known. Lives on the daemon's loop."""

    def __init__(
        self, read_cluster: Callable[[], tuple[Cluster, str]], path: Path, log: EventLogger, *, lookup: Lookup = look_up
    ) -> None:
        """`read_cluster`: the section in use, and which of its nodes this is. `path`: where names are remembered."""
        self._read_cluster = read_cluster
        self._path = path
        self._log = log
        self._lookup = lookup
        self._known = read_resolved(path)
        self._problems: dict[str, str] = {}
        self._lookups: dict[str, Blocking[list[str]]] = {}
        self._wake = asyncio.Event()
        self._retry = Backoff(_ANSWER_S, _EVERY_S)
        self.changed: Callable[[], None] = lambda: None
        """Called when an address came or went."""

    def addresses(self) -> dict[str, str]:
        """Address -> the nodes that it belongs to, in words."""
        cluster, here = self._read_cluster()
        return peer_addresses(cluster, here, self._known)

    def states(self) -> list[PeerState]:
        """Every host of another node, with what is known of it."""
        cluster, here = self._read_cluster()
        return [
            PeerState(
                host=host,
                nodes=list(nodes),
                addresses=addresses_of(host, self._known),
                resolved_at=self._known[host].at if host in self._known else "",
                problem=self._problems.get(host, ""),
            )
            for host, nodes in peer_hosts(cluster, here).items()
        ]

    def use_config(self) -> None:
        """The section may be another: look now."""
        self._retry.reset()
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._wake.clear()
            await self.resolve()
            if not self._problems:
                self._retry.reset()
            pause_s = self._retry.next_s() if self._problems else _EVERY_S
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def resolve(self) -> None:
        """Look every name up, all at the same time, and remember what came of it."""
        cluster, here = self._read_cluster()
        names, before = names_of(cluster, here), dict(self._known)
        self._lookups = {name: self._lookups.get(name) or self._begin(name) for name in names}
        gate = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._resolve(name, gate))
        self._known = {name: self._known[name] for name in names if name in self._known}
        self._problems = {name: self._problems[name] for name in names if name in self._problems}
        if self._known != before:
            self._keep()
            self.changed()

    def _begin(self, name: str) -> Blocking[list[str]]:
        return Blocking(f"the name {name}", partial(self._lookup, name), _ANSWER_S)

    async def _resolve(self, name: str, gate: asyncio.Semaphore) -> None:
        try:
            async with gate:
                addresses = await self._lookups[name]()
        except StillBlocked:
            self._complain(name, f"{name} does not resolve: no answer in {_ANSWER_S:g} s")
        except LlmgwError as error:
            self._complain(name, error.message)
        else:
            if self._problems.pop(name, None) is not None:
                self._log.info("peer_resolved", name=name, addresses=" ".join(addresses))
            known = self._known.get(name)
            if known is None or known.addresses != addresses:
                now = datetime.now(UTC).isoformat(timespec="seconds")
                self._known[name] = Resolved(addresses=addresses, at=now)

    def _complain(self, name: str, problem: str) -> None:
        if self._problems.get(name) != problem:
            self._log.warning("peer_unresolved", error=problem, kept=" ".join(addresses_of(name, self._known)))
        self._problems[name] = problem

    def _keep(self) -> None:
        try:
            write_resolved(self._path, self._known)
        except StorageError as error:
            self._log.warning("peers_not_kept", error=error.message)
