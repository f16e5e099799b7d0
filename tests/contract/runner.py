"""Runs scenarios against one back end: a name per line on stdin, an answer of one JSON object per line on stdout.

    python -m tests.contract.runner systemd             inside a booted host, as root
    python -m tests.contract.runner embedded STATE      with a supervisor of its own below STATE

A process of its own, because systemd can only be tried where it is PID 1; both back ends take the same way.
"""

import asyncio
import json
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from core.paths import Layout
from tests.contract.lab import Lab
from tests.contract.scenarios import SCENARIOS
from tests.contract.scenarios.systemd_only import SYSTEMD_ONLY
from units.backend import UnitBackend
from units.registry import load_backend

READY_TIMEOUT_S = 60.0
SCENARIO_TIMEOUT_S = 120.0


async def main(name: str, *state: str) -> None:
    layout = Layout.under(Path(state[0])) if state else Layout.system()
    scenarios = {**SCENARIOS, **(SYSTEMD_ONLY if name == "systemd" else {})}
    async with supervisor(*state), connected(load_backend(name, layout)) as backend:
        with tempfile.TemporaryDirectory(prefix="llmgw-contract-") as folder:
            Path(folder).chmod(0o777)
            answer({"ready": True})
            while wanted := (await asyncio.to_thread(sys.stdin.readline)).strip():
                lab = Lab(backend, Path(folder))
                began = time.monotonic()
                error = ""
                try:
                    async with asyncio.timeout(SCENARIO_TIMEOUT_S):
                        await scenarios[wanted](lab)
                except Exception:  # noqa: BLE001 - any failure is the answer
                    error = traceback.format_exc()
                try:
                    async with asyncio.timeout(SCENARIO_TIMEOUT_S):
                        await lab.clean_up()
                except Exception:  # noqa: BLE001 - so is one of the cleaning up
                    error = error or traceback.format_exc()
                answer({"error": error, "took_s": time.monotonic() - began})


def answer(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


@asynccontextmanager
async def connected(backend: UnitBackend) -> AsyncIterator[UnitBackend]:
    """The back end with its `run` going on beside the scenarios."""
    running = asyncio.create_task(backend.run())
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            await backend.wait_ready()
        yield backend
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@asynccontextmanager
async def supervisor(*state: str) -> AsyncIterator[None]:
    """The embedded supervisor as a process of its own; none for systemd, which is there already."""
    if not state:
        yield
        return
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "units.embedded", "--state", state[0])
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]), debug=True)
