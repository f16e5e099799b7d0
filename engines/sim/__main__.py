"""`python -m engines.sim`: the simulated engine as a process."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import TypeVar

from core.errors import LlmgwError
from core.http.server import HttpService, serve_tcp
from core.log import configure, get_logger
from engines.sim.app import build_app
from engines.sim.arguments import parse_arguments
from engines.sim.engine import InjectedFault, SimEngine
from engines.sim.meeting import Group, meet
from engines.sim.misbehave import StrayChild, hold_memory
from engines.sim.settings import Settings

_log = get_logger("sim")
_DRAIN_S = 5.0
_Found = TypeVar("_Found")


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; one of several first meets the others, and ends when one of them does.

    Raises: RanksMissing, RankRefused, RankLeft; OSError when a port cannot be had.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop.set)
    loop.add_signal_handler(signal.SIGTERM, (lambda: None) if settings.ignore_term else stop.set)
    group = await _meet(settings, stop)
    if group is None:
        _log.info("sim_stopped")
        return
    try:
        if settings.meeting is not None and settings.meeting.rank:
            await _or_stop(group.wait_broken(), stop)
        else:
            await _serve(settings, group, stop)
    finally:
        group.close()
    _log.info("sim_stopped")


async def _meet(settings: Settings, stop: asyncio.Event) -> Group | None:
    """The group, or None when the process is to stop before all have come."""
    meeting = settings.meeting
    if meeting is None:
        return Group([])
    _log.info("sim_meets", rank=meeting.rank, size=meeting.size, address=meeting.address, port=meeting.port)
    group = await _or_stop(meet(meeting), stop)
    if group is not None:
        _log.info("sim_met", rank=meeting.rank, size=meeting.size)
    return group


async def _serve(settings: Settings, group: Group, stop: asyncio.Event) -> None:
    service = HttpService(build_app(SimEngine(settings), _report), on_error=_report)
    await service.startup()
    server = await serve_tcp(service, settings.host, settings.port)
    child = StrayChild() if settings.fork_child else None
    ballast = hold_memory(settings.ballast_mib)
    try:
        port = server.sockets[0].getsockname()[1]
        _log.info("sim_listening", host=settings.host, port=port, child_pid=child.pid if child else 0)
        await _or_stop(group.wait_broken(), stop)
    finally:
        del ballast
        server.close()
        await service.drain(_DRAIN_S)
        await service.shutdown()
        if child is not None:
            child.end()


async def _or_stop(work: Coroutine[object, object, _Found], stop: asyncio.Event) -> _Found | None:
    """What `work` returns or raises; None when told to stop before."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.wait({working, stopping})


def _report(event: str, error: BaseException) -> None:
    if not isinstance(error, InjectedFault):
        _log.error(event, error=repr(error))


def main(argv: list[str]) -> int:
    """The process's exit status."""
    configure("llmgw-sim")
    try:
        settings = parse_arguments(argv)
        if settings.refuse_start:
            _log.error("sim_refuses_start", reason="told to refuse: tensor data is not within the file bounds")
            return 1
        asyncio.run(run(settings))
    except LlmgwError as error:
        _log.error("sim_failed", code=error.code, error=error.message)
        return 1
    except OSError as error:
        _log.error("sim_failed", code="cannot_listen", error=str(error))
        return 1
    return 0


sys.exit(main(sys.argv[1:]))
