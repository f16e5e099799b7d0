"""Engines that stand still, as real processes: what the gateway is told, and what becomes of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from core.activity import ActivityReport, RuntimeActivity
from core.api import RouteTarget
from core.http.client import HttpClient
from tests.integration.daemon.stack import Stack, running

QUICK = "ejectAfterMs: 10000, minNoProgressMs: 13000"


def config(options: str = "", watchdog: str = QUICK, more: str = "") -> str:
    return (
        "models: [{id: m, runtime: sim}]\n"
        f"runtimes: {{sim: {{engine: sim, options: {{{options}}}, watchdog: {{{watchdog}}}, {more}}}}}\n"
    )


async def target(stack: Stack) -> RouteTarget:
    """Where the gateway would send requests, as the newest route table says."""
    tables = stack.client.routes()
    table = await anext(tables)
    await tables.aclose()
    return table.models[0].targets[0]


async def ask(stack: Stack, http: HttpClient, **sim: object) -> int:
    """One buffered request, sent to the engine with its key, as the gateway would."""
    where = await target(stack)
    key = Path(where.key_file).read_text().strip()
    body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "a b"}], "sim": sim})
    reply = await http.fetch(
        "POST",
        f"http://{where.host}:{where.port}/v1/chat/completions",
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        body=body,
        timeout_s=100,
    )
    return reply.status


async def answer_health_late(stack: Stack) -> None:
    where = await target(stack)
    headers = {"Authorization": f"Bearer {Path(where.key_file).read_text().strip()}"}
    async with HttpClient() as http:
        url = f"http://{where.host}:{where.port}/sim/health"
        reply = await http.fetch("PUT", url, headers=headers, body=b'{"delayS": 60}', timeout_s=10)
    assert reply.status == 200


@asynccontextmanager
async def reporting(stack: Stack, activity: RuntimeActivity, *names: str) -> AsyncIterator[None]:
    """A gateway worker that goes on telling of these requests."""
    async with HttpClient(unix_socket=stack.layout.daemon_socket) as http:

        async def report() -> None:
            while True:
                message = ActivityReport(
                    source="test", epoch="e", version=1 << 40, runtimes=dict.fromkeys(names or ("sim",), activity)
                )
                await http.fetch("POST", "/v1/activity", body=msgspec.json.encode(message), timeout_s=10)
                await asyncio.sleep(0.5)

        task = asyncio.create_task(report())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def under_way(stack: Stack, **sim: object) -> AsyncIterator["asyncio.Task[int]"]:
    """A request at the engine, cancelled at the end when it is still there."""
    async with HttpClient() as http:
        task = asyncio.create_task(ask(stack, http, **sim))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until_rotation(stack: Stack, ready: bool) -> RouteTarget:
    """The first route table in which the target is or is not in rotation."""
    tables = stack.client.routes()
    try:
        async with asyncio.timeout(60):
            async for table in tables:
                if table.models[0].targets[0].ready is ready:
                    return table.models[0].targets[0]
    finally:
        await tables.aclose()
    raise AssertionError("the route tables ended")


async def test_a_hung_engine_leaves_rotation_and_is_restarted(tmp_path: Path) -> None:
    async with running(tmp_path, config()) as stack:
        before = await stack.client.start_runtime("sim")
        async with under_way(stack, fault="hang", afterTokens=3), reporting(stack, RuntimeActivity(active=1)):
            out = await until_rotation(stack, ready=False)
            assert out.state == "running" and "moves nothing" in out.reason
            restarted = await stack.until(lambda s: s.runtimes[0].pid not in (0, before.pid))
        again = await stack.until_runtime("sim", "running")
        assert again.pid == restarted.runtimes[0].pid != before.pid
        assert (await target(stack)).ready
        assert "watchdog_restarts" in stack.log_text()


async def test_a_slow_engine_with_a_thousand_requests_is_left_alone(tmp_path: Path) -> None:
    """It answers health late, sends no byte (one buffered answer), and its tokens move."""
    async with running(tmp_path, config()) as stack:
        before = await stack.client.start_runtime("sim")
        await answer_health_late(stack)
        async with under_way(stack, tokensPerS=2, tokens=64), reporting(stack, RuntimeActivity(active=1000)):
            await asyncio.sleep(16)  # longer than the restart limit, and less than the answer takes
            now = await stack.until_runtime("sim", "running")
            assert now.pid == before.pid and (await target(stack)).ready
        assert "watchdog_" not in stack.log_text()


async def test_an_engine_that_moves_again_returns(tmp_path: Path) -> None:
    settings = "ejectAfterMs: 10000, minNoProgressMs: 60000"
    async with running(tmp_path, config(watchdog=settings)) as stack:
        await stack.client.start_runtime("sim")
        slow = under_way(stack, firstTokenS=18, tokensPerS=1, tokens=20)
        async with slow, reporting(stack, RuntimeActivity(active=1)):
            await until_rotation(stack, ready=False)
            await until_rotation(stack, ready=True)
        assert "watchdog_readmitted" in stack.log_text()


async def test_clients_that_do_not_read_and_clients_that_gave_up_are_not_the_engines_fault(tmp_path: Path) -> None:
    async with running(tmp_path, config()) as stack:
        await stack.client.start_runtime("sim")
        async with under_way(stack, fault="hang"), reporting(stack, RuntimeActivity(active=1, held_back=1)):
            await asyncio.sleep(15)
            assert (await target(stack)).ready
        assert "watchdog_" not in stack.log_text()


async def test_observing_only_tells(tmp_path: Path) -> None:
    async with running(tmp_path, config(watchdog=f"{QUICK}, action: observe")) as stack:
        before = await stack.client.start_runtime("sim")
        async with under_way(stack, fault="hang"), reporting(stack, RuntimeActivity(active=1)):
            await stack.until(lambda _: "watchdog_observed" in stack.log_text())
            assert (await target(stack)).ready
        assert (await stack.until_runtime("sim", "running")).pid == before.pid


async def test_switching_the_watchdog_off_applies_live(tmp_path: Path) -> None:
    async with running(tmp_path, config(watchdog="ejectAfterMs: 10000, minNoProgressMs: 60000")) as stack:
        before = await stack.client.start_runtime("sim")
        async with under_way(stack, fault="hang"), reporting(stack, RuntimeActivity(active=1)):
            await until_rotation(stack, ready=False)
            stack.write_config(config(watchdog="enabled: false"))
            await stack.client.reload()
            await until_rotation(stack, ready=True)
        assert (await stack.until_runtime("sim", "running")).pid == before.pid


async def test_what_a_running_engine_holds_is_its_next_estimate(tmp_path: Path) -> None:
    async with running(tmp_path, config("ballastMib: 100")) as stack:
        status = await stack.client.start_runtime("sim")
        await stack.until(lambda _: estimates(stack) is not None)
        learnt = estimates(stack)
        assert learnt is not None and status.memory_mib is not None
        assert 100 < learnt < 400 and abs(learnt - status.memory_mib) < 100


def estimates(stack: Stack) -> int | None:
    path = stack.layout.state / "estimates.json"
    if not path.exists():
        return None
    size = msgspec.json.decode(path.read_bytes())["sim"]["host_mib"]
    assert isinstance(size, int)
    return size
