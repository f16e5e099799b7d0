"""Runs the three programs until a person stops them: prepare, take over, listen, start, bring up, wait, stop.

Whatever ends it (Ctrl-C, SIGTERM, a closed terminal, an error on the way) the programs are stopped in order:
gateway and daemon, then the supervisor with every engine. A second Ctrl-C ends the gateway's streams at once.
"""

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from cli.adding import Place
from cli.addition import Request
from cli.output import note
from cli.up.bring_up import Serving, bring_up
from cli.up.child import Child, trim_log
from cli.up.engines import stop_engines
from cli.up.leftovers import end_leftovers
from cli.up.prepare import alone, listening, load_or_write_config
from cli.up.programs import DAEMON, GATEWAY, SUPERVISOR, build_programs

TREE = Path(__file__).resolve().parents[2]
"""Where our packages lie: a checkout, or the installed tree."""

_GATEWAY_GRACE_S = 5.0
_DAEMON_GRACE_S = 10.0
_SUPERVISOR_GRACE_S = 30.0
_TRIM_EVERY_S = 30.0

OnServing = Callable[[Serving, float], None]


class Foreground:
    """One `llmgw up` on one state directory."""

    def __init__(self, root: Path, place: Place, *, port: int | None, request: Request | None) -> None:
        self._root = root
        self._place = place
        self._port = port
        self._request = request
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self, on_serving: OnServing) -> None:
        """All of it; returns after an ordered stop. Raises: what keeps it from serving."""
        began = time.monotonic()
        layout = self._place.layout
        with self._handling_signals(), alone(self._root, layout):
            ended = await end_leftovers(self._root)
            if ended:
                note(f"an earlier llmgw up was killed; ended what it left ({len(ended)} processes) and taking over")
            config = load_or_write_config(self._place, self._port).config
            with listening(config.server.host, config.server.port) as listener:
                programs = build_programs(
                    layout,
                    self._root,
                    config,
                    self._place.environ,
                    python=sys.executable,
                    tree=TREE,
                    listener_fd=listener.fileno(),
                )
                children = {program.name: Child(program) for program in programs}
                try:
                    await self._attend(children, on_serving, began)
                finally:
                    await self._stop_all(children)

    async def _attend(self, children: dict[str, Child], on_serving: OnServing, began: float) -> None:
        """Until a signal: keep the children running, bring everything up, tell it, and keep logs small."""

        async def serve() -> None:
            serving = await bring_up(self._place, self._request)
            for child in children.values():
                child.patient = True
            on_serving(serving, time.monotonic() - began)

        work: list[Awaitable[None]] = [child.run() for child in children.values()]
        await run_until(self._stop, [*work, serve(), _trim_logs(children)])

    async def _stop_all(self, children: dict[str, Child]) -> None:
        note("stopping")
        async with asyncio.TaskGroup() as group:
            group.create_task(children[GATEWAY].stop(_GATEWAY_GRACE_S, hurry=self._hurry))
            group.create_task(children[DAEMON].stop(_DAEMON_GRACE_S, hurry=self._hurry))
        asked = await stop_engines(self._place.layout)
        await children[SUPERVISOR].stop(_SUPERVISOR_GRACE_S, send=not asked)

    @contextlib.contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """First signal: stop in order. Second: in a hurry."""
        loop = asyncio.get_running_loop()
        handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in handled:
            loop.add_signal_handler(number, self._on_signal)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()


async def run_until(stop: asyncio.Event, work: list[Awaitable[None]]) -> None:
    """Run all of `work` at once until `stop` is set. The first that fails ends all, with its own error."""

    async def watch(group_stop: asyncio.Event) -> None:
        await group_stop.wait()
        raise _Stopped

    async def own(one: Awaitable[None]) -> None:
        await one

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(watch(stop))
            for one in work:
                group.create_task(own(one))
    except BaseExceptionGroup as failures:
        first = failures.exceptions[0]
        if not isinstance(first, _Stopped):
            raise first from None


class _Stopped(Exception):
    """A person asked to stop; not an error."""


async def _trim_logs(children: dict[str, Child]) -> None:
    while True:
        await asyncio.sleep(_TRIM_EVERY_S)
        for child in children.values():
            trim_log(child.program.log)
