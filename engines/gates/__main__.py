"""`python -m engines.gates KIND --port P --engine-port E --key-file F …`: a gate as a process."""

import asyncio
import signal
import sys

import uvloop

from core.errors import LlmgwError
from core.http.client import HttpClient
from core.http.pool import UpstreamPool
from core.http.server import HttpService, serve_tcp
from core.log import configure, get_logger
from engines.gates.comfyui.app import ComfyGate
from engines.gates.generic import build_generic
from engines.gates.settings import GateSettings, parse_settings

_log = get_logger("gate")
_DRAIN_S = 5.0


async def serve(settings: GateSettings) -> None:
    """Serve until SIGTERM or SIGINT. Raises: OSError when the port cannot be had, LlmgwError."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    pool = UpstreamPool()
    async with HttpClient(base_url=f"http://127.0.0.1:{settings.engine_port}") as engine:
        try:
            if settings.kind == "generic":
                await _listen(settings, HttpService(build_generic(settings, engine, pool), on_error=_report), stop)
            else:
                gate = ComfyGate(settings, engine, pool, _log)
                following = loop.create_task(gate.run())
                following.add_done_callback(lambda _: stop.set())
                try:
                    await _listen(settings, HttpService(gate, on_error=_report), stop)
                finally:
                    following.cancel()
                    await asyncio.wait({following})
                if not following.cancelled():
                    following.result()
        finally:
            await pool.close()


async def _listen(settings: GateSettings, service: HttpService, stop: asyncio.Event) -> None:
    await service.startup()
    server = await serve_tcp(service, settings.host, settings.port)
    _log.info("gate_listening", kind=settings.kind, port=settings.port, engine_port=settings.engine_port)
    try:
        await stop.wait()
    finally:
        server.close()
        await service.drain(_DRAIN_S)
        await service.shutdown()
    _log.info("gate_stopped")


def _report(event: str, error: BaseException) -> None:
    _log.error(event, error=repr(error))


def main(argv: list[str]) -> int:
    """The process's exit status."""
    configure("llmgw-gate")
    try:
        settings = parse_settings(argv)
        uvloop.run(serve(settings))
    except LlmgwError as error:
        _log.error("gate_failed", code=error.code, error=error.message)
        return 1
    except OSError as error:
        _log.error("gate_failed", code="cannot_listen", error=str(error))
        return 1
    return 0


sys.exit(main(sys.argv[1:]))
