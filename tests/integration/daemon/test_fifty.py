"""Fifty runtimes wanted at once: each gets a port of its own, and the next daemon takes all of them over.

The engines are `sleep`; one server answers for the health of all. How long it takes and what it costs is measured by
`make bench`, under systemd.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from core.api import NodeState
from tests.integration.daemon.stack import free_port, running

COUNT = 50


@asynccontextmanager
async def healthy(port: int) -> AsyncIterator[None]:
    """Answers every request with 200."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    async with server:
        yield


def config(port: int, count: int) -> str:
    one = (
        "{engine: command, command: [/bin/sleep, infinity], keepWarm: true, memoryGb: 0.01, "
        f"healthUrl: 'http://127.0.0.1:{port}/health'}}"
    )
    return "runtimes: {" + ", ".join(f"r{number}: {one}" for number in range(count)) + "}\n"


def all_run(state: NodeState) -> bool:
    return len(state.runtimes) == COUNT and all(runtime.state == "running" for runtime in state.runtimes)


async def test_fifty_runtimes_in_one_pass_share_no_port_and_are_adopted_as_they_are(tmp_path: Path) -> None:
    port = free_port()
    async with healthy(port), running(tmp_path, "runtimes: {}\n", ports=2 * COUNT, unseen=True) as stack:
        stack.write_config(config(port, COUNT))
        assert len((await stack.client.reload()).started) == COUNT
        started = await stack.until(all_run)
        assert len({runtime.port for runtime in started.runtimes}) == COUNT
        pids = {runtime.id: runtime.pid for runtime in started.runtimes}
        stack.kill(stack.daemon)
        stack.start_daemon()
        adopted = await stack.until(all_run)
        assert {runtime.id: runtime.pid for runtime in adopted.runtimes} == pids
        assert {runtime.reason for runtime in adopted.runtimes} == {"adopted"}
        await stack.client.set_serving(False)
        await stack.until(lambda state: all(runtime.state == "stopped" for runtime in state.runtimes))
        assert stack.engine_pids() == []


async def test_a_range_with_too_few_ports_fails_only_those_that_get_none(tmp_path: Path) -> None:
    port = free_port()
    async with healthy(port), running(tmp_path, config(port, 8), ports=5) as stack:
        state = await stack.until(lambda s: all(runtime.state in ("running", "failed") for runtime in s.runtimes))
        failed = [runtime for runtime in state.runtimes if runtime.state == "failed"]
        assert len(failed) == 3 and all("is free for another" in runtime.reason for runtime in failed)
