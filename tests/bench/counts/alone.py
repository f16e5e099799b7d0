"""`python -m tests.bench.counts.alone PORT`: the gateway in one process, for programs that can watch only one.

The worker's own parts without gunicorn around them, and without the reports to the daemon, which come by the clock:
the slower a machine, the more of them a request would be charged for. USR1 begins to count calls of Python's and of C's
functions, USR2 ends it: each is told on standard output, as `calls begin` and `calls NUMBER`.
"""

import asyncio
import cProfile
import pstats
import signal
import sys

import uvloop

from core.http.malloc import keep_freed_memory
from core.http.server import HttpService, serve_tcp
from gateway import activity
from gateway.app import create_app
from gateway.usage import reporter

_NEVER_S = 1e6


async def serve(port: int) -> None:
    """Until TERM or INT."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    profile = cProfile.Profile()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGUSR1, _begin_calls, profile)
    loop.add_signal_handler(signal.SIGUSR2, _tell_calls, profile)
    service = HttpService(create_app())
    await service.startup()
    server = await serve_tcp(service, "127.0.0.1", port)
    await stopping.wait()
    server.close()
    await service.drain(0.0)
    await service.shutdown()


def _begin_calls(profile: cProfile.Profile) -> None:
    print("calls begin", flush=True)
    profile.enable()


def _tell_calls(profile: cProfile.Profile) -> None:
    profile.disable()
    calls = sum(calls for calls, *_ in pstats.Stats(profile).stats.values())  # type: ignore[attr-defined]
    profile.clear()
    print("calls", calls, flush=True)


if __name__ == "__main__":
    for module, name in ((activity, "DEBOUNCE_S"), (activity, "REPORT_EVERY_S"), (reporter, "REPORT_EVERY_S")):
        setattr(module, name, _NEVER_S)
    keep_freed_memory()
    uvloop.run(serve(int(sys.argv[1])))
