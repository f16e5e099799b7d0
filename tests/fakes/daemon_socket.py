"""A daemon's socket as far as the gateway uses it: real HTTP on a real unix socket, steered by a test.

    async with FakeDaemon(path, table) as daemon:
        daemon.publish(other_table)     # every follower gets it at once
        await daemon.stop()             # as a crash looks: the socket file is gone, connections are cut
        await daemon.start()

Also a program of its own: `python -m tests.fakes.daemon_socket SOCKET < table.json` serves one table until ended.
"""

import argparse
import asyncio
import functools
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
from aiohttp import web

from core.activity import ActivityReport
from core.admission import PlanReply, ServingReply, WarmupReply
from core.api import (
    ConfigStatus,
    ErrorBody,
    ErrorReply,
    KvEventsStatus,
    NodeState,
    RouteTable,
    RuntimeStatus,
    StartRequest,
)
from core.engines import EngineBuild, EngineList
from core.hardware import DoctorReport
from core.message import Message
from core.usage import UsageAccepted, UsageList, UsageReport, UsageRow, add_rows


def plain_state() -> NodeState:
    """A node with one running runtime."""
    return NodeState(
        node="n1",
        version="0.1.0",
        pid=1,
        started_at="2026-01-01T00:00:00Z",
        service_manager="fake",
        config=ConfigStatus(path="/etc/llmgw/config.yaml"),
        server_host="127.0.0.1",
        server_port=8100,
        runtimes=[
            RuntimeStatus(
                id="r1",
                state="running",
                engine="sim",
                models=["m"],
                port=8201,
                pid=42,
                kv_events=KvEventsStatus(endpoint="ipc:///run/x/kv"),
            )
        ],
        memory_total_mib=16384,
        memory_available_mib=8192,
        cpu_count=2,
    )


class FakeDaemon:
    """See the module."""

    def __init__(self, socket: Path, table: RouteTable | None) -> None:
        self.socket = socket
        self.table = table
        """None: a daemon that accepts, and sends no table."""
        self.state = plain_state()
        self.starts: list[tuple[str, StartRequest]] = []
        self.refusal: tuple[int, ErrorBody] | None = None
        """What every start request, and all that an administrator wants, is answered instead."""
        self.start_delay_s = 0.0
        self.started = asyncio.Event()
        self.reports: dict[str, ActivityReport] = {}
        """The last report of each worker."""
        self.asked: list[tuple[str, dict[str, object]]] = []
        """What an administrator had done: `stop r1`, `serving`, …, and the body."""
        self.plan = PlanReply(runtime="r1", allowed=True, code="allowed", message="it fits", retryable=False)
        self.builds: list[EngineBuild] = []
        self.report = DoctorReport(
            node="n1", generated_at="2026-01-01T00:00:00Z", ok=True, complete=True, blockers=0, warnings=0
        )
        self.usage: dict[tuple[str, int], UsageReport] = {}
        """Every report of usage, once, by source and number."""
        self.usage_asked: list[dict[str, str]] = []
        self.usage_answers_lost = 0
        """So many reports of usage are taken, and the answers to them lost."""
        self._reported = asyncio.Condition()
        self._followers: set[asyncio.Queue[RouteTable]] = set()
        self._followed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "FakeDaemon":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/v1/state", self._get_state)
        app.router.add_get("/v1/routes", self._get_routes)
        app.router.add_post("/v1/runtimes/{id}/start", self._post_start)
        app.router.add_post("/v1/activity", self._post_activity)
        app.router.add_post("/v1/usage", self._post_usage)
        app.router.add_get("/v1/usage", self._get_usage)
        app.router.add_get("/v1/runtimes/{id}/plan", self._get_plan)
        app.router.add_get("/v1/engines", self._get_engines)
        app.router.add_get("/v1/doctor", self._get_doctor)
        app.router.add_post("/v1/runtimes/{id}/{action}", self._post_action)
        app.router.add_post("/v1/serving", self._post_serving)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self.socket)).start()

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
            self.socket.unlink(missing_ok=True)

    def publish(self, table: RouteTable) -> None:
        """Make this the table, and send it to all who follow."""
        self.table = table
        for follower in self._followers:
            follower.put_nowait(table)

    async def wait_followers(self, count: int) -> None:
        """Return once that many connections follow the routes."""
        async with self._followed:
            await self._followed.wait_for(lambda: len(self._followers) >= count)

    async def wait_reports(self, holds: Callable[[list[ActivityReport]], bool]) -> None:
        """Return once the last reports of all workers satisfy `holds`."""
        async with self._reported:
            await self._reported.wait_for(lambda: holds(list(self.reports.values())))

    async def wait_usage(self, holds: Callable[[UsageRow], bool]) -> UsageRow:
        """The sum of all reports of usage, once it satisfies `holds`."""
        async with self._reported:
            await self._reported.wait_for(lambda: holds(self.usage_total))
        return self.usage_total

    @property
    def usage_total(self) -> UsageRow:
        rows = [row for report in self.usage.values() for row in report.rows]
        return functools.reduce(add_rows, rows, UsageRow())

    async def _get_usage(self, request: web.Request) -> web.Response:
        self.usage_asked.append(dict(request.query))
        found = UsageList(from_="2026-01-01", to="2026-01-31")
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    async def _post_usage(self, request: web.Request) -> web.Response:
        report = msgspec.json.decode(await request.read(), type=UsageReport)
        async with self._reported:
            self.usage.setdefault((report.source, report.sequence), report)
            self._reported.notify_all()
        if self.usage_answers_lost and request.transport is not None:
            self.usage_answers_lost -= 1
            request.transport.abort()
        return web.Response(body=msgspec.json.encode(UsageAccepted(sequence=report.sequence)))

    async def _post_activity(self, request: web.Request) -> web.Response:
        report = msgspec.json.decode(await request.read(), type=ActivityReport)
        async with self._reported:
            self.reports[report.source] = report
            self._reported.notify_all()
        return web.Response(body=msgspec.json.encode(ServingReply(serving=True)), content_type="application/json")

    async def _get_state(self, request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(self.state), content_type="application/json")

    async def _get_routes(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[RouteTable] = asyncio.Queue()
        if self.table is not None:
            queue.put_nowait(self.table)
        self._followers.add(queue)
        async with self._followed:
            self._followed.notify_all()
        try:
            while True:
                await response.write(msgspec.json.encode(await queue.get()) + b"\n")
        finally:
            self._followers.discard(queue)

    async def _post_start(self, request: web.Request) -> web.Response:
        self.starts.append((request.match_info["id"], msgspec.json.decode(await request.read(), type=StartRequest)))
        self.started.set()
        if self.start_delay_s:
            await asyncio.sleep(self.start_delay_s)
        if self.refusal is not None:
            status, body = self.refusal
            return web.Response(status=status, body=msgspec.json.encode(ErrorReply(error=body)))
        answer = RuntimeStatus(id=request.match_info["id"], state="starting")
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    async def _get_plan(self, request: web.Request) -> web.Response:
        return self._reply(msgspec.structs.replace(self.plan, runtime=request.match_info["id"]))

    async def _get_engines(self, request: web.Request) -> web.Response:
        return self._reply(EngineList(builds=self.builds))

    async def _get_doctor(self, request: web.Request) -> web.Response:
        return self._reply(self.report)

    async def _post_action(self, request: web.Request) -> web.Response:
        id_, action = request.match_info["id"], request.match_info["action"]
        self.asked.append((f"{action} {id_}", await request.json() if request.can_read_body else {}))
        if action == "warmup":
            return self._reply(WarmupReply(runtime=id_, took_s=0.25))
        if action == "admit":
            return self._reply(msgspec.structs.replace(self.plan, runtime=id_))
        return self._reply(RuntimeStatus(id=id_, state={"stop": "stopped", "restart": "running"}[action]))

    async def _post_serving(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.asked.append(("serving", asked))
        return self._reply(ServingReply(serving=asked["on"], stopped=[] if asked["on"] else ["r1"]))

    def _reply(self, message: Message) -> web.Response:
        """The message, or the refusal that a test wants."""
        if self.refusal is not None:
            status, body = self.refusal
            return web.Response(status=status, body=msgspec.json.encode(ErrorReply(error=body)))
        return web.Response(body=msgspec.json.encode(message), content_type="application/json")


async def serve(socket: Path, table: RouteTable) -> None:
    """Serve one table until cancelled."""
    async with FakeDaemon(socket, table):
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("socket", type=Path)
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.socket, msgspec.json.decode(sys.stdin.buffer.read(), type=RouteTable)))


if __name__ == "__main__":
    main()
