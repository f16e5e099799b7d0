"""`python -m engines.sim`: the simulated engine as a process."""

import asyncio
import signal
import sys

from core.errors import LlmgwError
from core.http.server import HttpService, serve_tcp
from core.log import configure, get_logger
from engines.sim.app import build_app
from engines.sim.arguments import parse_arguments
from engines.sim.engine import InjectedFault, SimEngine
from engines.sim.misbehave import StrayChild, hold_memory
from engines.sim.settings import Settings

_log = get_logger("sim")
_DRAIN_S = 5.0


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises: OSError when the port cannot be had."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop.set)
    loop.add_signal_handler(signal.SIGTERM, (lambda: None) if settings.ignore_term else stop.set)
    service = HttpService(build_app(SimEngine(settings), _report), on_error=_report)
    await service.startup()
    server = await serve_tcp(service, settings.host, settings.port)
    child = StrayChild() if settings.fork_child else None
    ballast = hold_memory(settings.ballast_mib)
    try:
        port = server.sockets[0].getsockname()[1]
        _log.info("sim_listening", host=settings.host, port=port, child_pid=child.pid if child else 0)
        await stop.wait()
    finally:
        del ballast
        server.close()
        await service.drain(_DRAIN_S)
        await service.shutdown()
        if child is not None:
            child.end()
    _log.info("sim_stopped")


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
        asyncio.run(serve(settings))
    except LlmgwError as error:
        _log.error("sim_failed", code=error.code, error=error.message)
        return 1
    except OSError as error:
        _log.error("sim_failed", code="cannot_listen", error=str(error))
        return 1
    return 0


sys.exit(main(sys.argv[1:]))
