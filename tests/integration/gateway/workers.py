"""The gateway as it is deployed: gunicorn and its workers as processes, on a socket that was passed to them.

The socket is made here (the kernel chooses the port) and handed over as systemd would do it, so that there is no
moment in which somebody else could take the port.
"""

import asyncio
import json
import os
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.gateway.harness import raw_request

REPOSITORY = Path(__file__).parents[3]
READY_S = 30.0
_AS_ACTIVATED = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""
"""What systemd does before it runs a service of a socket unit."""


@dataclass
class Workers:
    """A running gunicorn."""

    address: tuple[str, int]
    process: asyncio.subprocess.Process
    log: Path
    tls: ssl.SSLContext | None = None

    async def pid(self) -> int:
        """The worker that answers this one request."""
        answer = await raw_request(self.address, "/health", method="GET")
        return int(json.loads(answer.body)["pid"])

    async def wait_ready(self) -> None:
        """Return once a worker serves."""
        async with asyncio.timeout(READY_S):
            while True:
                try:
                    if (await raw_request(self.address, "/health/ready", method="GET", tls=self.tls)).status == 200:
                        return
                except (OSError, IndexError, ValueError):
                    pass
                await asyncio.sleep(0.02)

    def children(self) -> set[int]:
        """The workers' process ids, as the kernel knows them."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return {int(pid) for pid in text.split()}

    async def wait_new(self, old: set[int]) -> set[int]:
        """The workers that came after these, once they are as many and one of them answers."""
        async with asyncio.timeout(READY_S):
            while True:
                new = self.children() - old
                if len(new) >= len(old) and await self.pid() in new:
                    return new
                await asyncio.sleep(0.02)

    async def wait_gone(self, old: set[int]) -> None:
        """Return once none of these workers lives any more, and others do."""
        async with asyncio.timeout(READY_S):
            while True:
                now = self.children()
                if now and not now & old:
                    return
                await asyncio.sleep(0.02)

    async def wait_said(self, words: str) -> str:
        """The log, once it holds these words."""
        async with asyncio.timeout(READY_S):
            while True:
                said = self.log.read_text()
                if words in said:
                    return said
                await asyncio.sleep(0.02)

    async def wait_children(self, count: int, *, without: int = 0) -> set[int]:
        """The workers, once there are `count` and none of them is `without`."""
        async with asyncio.timeout(READY_S):
            while True:
                found = self.children() - {without}
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.02)


@asynccontextmanager
async def workers(
    state: Path,
    count: int,
    *,
    tls: ssl.SSLContext | None = None,
    ready: bool = True,
    activated: bool = True,
    **environment: str,
) -> AsyncIterator[Workers]:
    """gunicorn with so many workers; ended, and killed if need be, with the block.

    `tls`: whom to trust, where it speaks TLS. `ready`: whether it is waited for. `activated`: whether the socket is
    handed to it; else it binds the port itself.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        address = listener.getsockname()
        log = state / "gateway.log"
        variables = {"LLMGW_STATE": str(state), "LLMGW_WORKERS": str(count), "PYTHONPATH": str(REPOSITORY)}
        before = [sys.executable, "-c", _AS_ACTIVATED, str(listener.fileno())]
        if not activated:
            variables["LLMGW_BIND"] = f"{address[0]}:{address[1]}"
            before = []
        with log.open("wb") as output:
            if not activated:
                listener.close()
            process = await asyncio.create_subprocess_exec(
                *before,
                sys.executable, "-m", "gunicorn", "-c", "packaging/gunicorn.conf.py", "gateway.app:create_app()",
                env={"PATH": os.environ["PATH"]} | variables | environment, cwd=REPOSITORY, start_new_session=True,
                pass_fds=(listener.fileno(),) if activated else (), stdout=output, stderr=output,
            )  # fmt: skip
    running = Workers(address, process, log, tls)
    try:
        if ready:
            await running.wait_ready()
        yield running
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    await process.wait()
