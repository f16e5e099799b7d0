"""`GET /gateway/node`, `/cluster`, `/status`, `/doctor`: the daemon's view of this node, for admins and leaders."""

import os
import platform
import socket
from pathlib import Path

from falcon.asgi import Request, Response

from core.client import DaemonClient
from gateway.auth import Access
from gateway.cluster_view import describe_cluster
from gateway.guard import Guard
from gateway.node_view import SystemFacts, describe_node, describe_status
from gateway.state import RouteState
from gateway.telemetry import describe_doctor


def read_system_facts() -> SystemFacts:
    """Ask the operating system; what it does not say is null."""
    names = os.uname()
    try:
        uptime_s: float | None = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        uptime_s = None
    return SystemFacts(socket.gethostname(), platform.system().lower(), names.machine, names.release, uptime_s)


class Node:
    """The node's own snapshot. Raises the daemon's error when it is away: observed state is never remembered."""

    def __init__(self, guard: Guard, daemon: DaemonClient) -> None:
        self._guard = guard
        self._daemon = daemon

    async def on_get(self, req: Request, resp: Response) -> None:
        routes = self._guard.admit_request(Access.ADMIN, req)
        state = await self._daemon.state()
        resp.media = {"ok": True, "node": describe_node(state, routes.lookup, read_system_facts())}


class Cluster:
    """Every node of the cluster, as far as this one knows."""

    def __init__(self, guard: Guard, daemon: DaemonClient) -> None:
        self._guard = guard
        self._daemon = daemon

    async def on_get(self, req: Request, resp: Response) -> None:
        routes = self._guard.admit_request(Access.ADMIN, req)
        state = await self._daemon.state()
        resp.media = {"ok": True, "cluster": describe_cluster(state, routes.lookup, read_system_facts())}


class Status:
    """The gateway's and the node's state in one object."""

    def __init__(self, guard: Guard, daemon: DaemonClient, state: RouteState) -> None:
        self._guard = guard
        self._daemon = daemon
        self._state = state

    async def on_get(self, req: Request, resp: Response) -> None:
        routes = self._guard.admit_request(Access.ADMIN, req)
        state = await self._daemon.state()
        resp.media = describe_status(state, routes.lookup, daemon_connected=self._state.connected)


class Doctor:
    """What is wrong with the node, found now. 200 whatever is found: the report says whether it blocks."""

    def __init__(self, guard: Guard, daemon: DaemonClient) -> None:
        self._guard = guard
        self._daemon = daemon

    async def on_get(self, req: Request, resp: Response) -> None:
        self._guard.admit_request(Access.ADMIN, req)
        resp.media = describe_doctor(await self._daemon.doctor())
