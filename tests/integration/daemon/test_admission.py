"""Admission on real processes: two runtimes that do not fit together, and what operators and clients see."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from core.activity import ActivityReport, RuntimeActivity
from core.admission import PlanReply
from core.errors import LlmgwError, RefusedError, UnavailableError
from core.http.client import HttpClient
from daemon.hardware.memory import read_memory
from tests.integration.daemon.stack import Stack, running


def sizes(share: float) -> float:
    """That share of this machine's memory, in GiB."""
    memory = read_memory()
    assert memory is not None and memory.total_mib is not None
    return round(memory.total_mib / 1024 * share, 2)


def two(first: str = "", second: str = "", policy: str = "minResidencyMs: 0") -> str:
    """Runtimes of 40 % each in a budget of 70 %: one fits beside other programs, two never do."""
    return (
        f"runtimePolicy: {{memoryBudgetGb: {sizes(0.7)}, {policy}}}\n"
        "models: [{id: a, runtime: a}, {id: b, runtime: b}]\n"
        f"runtimes:\n  a: {{engine: sim, memoryGb: {sizes(0.4)}, {first}}}\n"
        f"  b: {{engine: sim, memoryGb: {sizes(0.4)}, {second}}}\n"
    )


async def post(stack: Stack, path: str, message: object) -> int:
    async with HttpClient(unix_socket=stack.layout.daemon_socket) as http:
        return (await http.fetch("POST", path, body=msgspec.json.encode(message), timeout_s=10)).status


async def report(stack: Stack, **active: int) -> None:
    """As a gateway worker with these requests under way."""
    table = await anext(tables := stack.client.routes())
    await tables.aclose()
    runtimes = {name: RuntimeActivity(active=count) for name, count in active.items()}
    message = ActivityReport(source="test", epoch=table.epoch, version=1 << 40, runtimes=runtimes)
    assert await post(stack, "/v1/activity", message) == 200


async def plan(stack: Stack, runtime_id: str) -> PlanReply:
    async with HttpClient(unix_socket=stack.layout.daemon_socket) as http:
        reply = await http.fetch("GET", f"/v1/runtimes/{runtime_id}/plan", timeout_s=10)
    return msgspec.json.decode(reply.body, type=PlanReply)


async def test_an_idle_runtime_makes_room(tmp_path: Path) -> None:
    async with running(tmp_path, two()) as stack:
        await stack.client.start_runtime("a")
        said = await plan(stack, "b")
        assert said.allowed and [row.id for row in said.runtimes if row.action == "stop"] == ["a"]
        assert (await stack.client.state()).runtimes[0].state == "running", "a plan changes nothing"
        assert (await stack.client.start_runtime("b")).state == "running"
        evicted = await stack.until_runtime("a", "stopped")
        assert evicted.reason == "makes room for b"
        assert len(stack.engine_pids()) == 1


async def test_a_pin_is_never_evicted_and_the_refusal_says_the_plans_words(tmp_path: Path) -> None:
    async with running(tmp_path, two(first="keepWarm: true")) as stack:
        await stack.until_runtime("a", "running")
        said = await plan(stack, "b")
        with pytest.raises(UnavailableError) as caught:
            await stack.client.start_runtime("b")
        assert caught.value.code == said.code == "runtime_keep_warm_conflict"
        # The free memory differs from one look to the next; the rest is the same sentence.
        assert caught.value.message.split(";")[1] == said.message.split(";")[1] == " a (keep-warm) stays"
        assert (await stack.until_runtime("b", "stopped")).reason.endswith("a (keep-warm) stays")


async def test_what_can_never_fit_is_refused_at_once(tmp_path: Path) -> None:
    config = two(second="priority: 5").replace(
        f"b: {{engine: sim, memoryGb: {sizes(0.4)}", f"b: {{engine: sim, memoryGb: {sizes(0.9)}"
    )
    async with running(tmp_path, config) as stack:
        with pytest.raises(UnavailableError, match="stopping everything would not be enough"):
            await stack.client.start_runtime("b")


async def test_a_runtime_of_unknown_size_is_refused_with_the_setting_that_helps(tmp_path: Path) -> None:
    config = 'runtimes: {x: {engine: command, command: [/bin/sleep, "9"], healthUrl: "http://127.0.0.1:1/"}}\n'
    async with running(tmp_path, config) as stack:
        with pytest.raises(LlmgwError, match=r"set runtimes\.x\.memoryGb"):
            await stack.client.start_runtime("x")


async def test_a_busy_runtime_is_waited_for_and_then_makes_room(tmp_path: Path) -> None:
    async with running(tmp_path, two()) as stack:
        await stack.client.start_runtime("a")
        await report(stack, a=1)
        start = asyncio.create_task(stack.client.start_runtime("b"))
        queued = await stack.until_runtime("b", "queued")
        assert "a (active-requests) stays" in queued.reason
        await report(stack, a=0)
        assert (await start).state == "running"
        await stack.until_runtime("a", "stopped")


async def test_a_wait_for_room_ends_with_a_refusal_that_may_be_retried(tmp_path: Path) -> None:
    async with running(tmp_path, two(policy="minResidencyMs: 0, admissionWaitMs: 1500")) as stack:
        await stack.client.start_runtime("a")
        await report(stack, a=1)
        with pytest.raises(RefusedError) as caught:
            await stack.client.start_runtime("b")
        assert caught.value.code == "runtime_capacity_busy"
        assert (await stack.until_runtime("a", "running")).pid > 0


async def test_a_fresh_runtime_is_not_evicted_before_its_residency_is_over(tmp_path: Path) -> None:
    async with running(tmp_path, two(policy="minResidencyMs: 6000")) as stack:
        await stack.client.start_runtime("a")
        start = asyncio.create_task(stack.client.start_runtime("b"))
        queued = await stack.until_runtime("b", "queued")
        assert "a (minimum-residency) stays" in queued.reason
        assert (await start).state == "running"


async def test_constant_traffic_for_one_model_does_not_starve_the_other(tmp_path: Path) -> None:
    async with running(tmp_path, two()) as stack:
        await stack.client.start_runtime("a")
        await report(stack, a=1)
        start = asyncio.create_task(stack.client.start_runtime("b"))
        drained = asyncio.create_task(stack.until_runtime("a", "draining"))
        while not drained.done():
            await report(stack, a=1)
            await asyncio.sleep(0.2)
        await report(stack, a=0)
        assert (await start).state == "running"


async def test_an_operator_gives_up_a_queued_start(tmp_path: Path) -> None:
    async with running(tmp_path, two()) as stack:
        await stack.client.start_runtime("a")
        await report(stack, a=1)
        start = asyncio.create_task(stack.client.start_runtime("b"))
        await stack.until_runtime("b", "queued")
        assert (await stack.client.stop_runtime("b")).state == "stopped"
        with pytest.raises(LlmgwError, match="was stopped while it was starting"):
            await start


async def test_a_runtime_that_nobody_uses_is_stopped(tmp_path: Path) -> None:
    async with running(tmp_path, "runtimes: {sim: {engine: sim, idleStopMs: 3000}}\n") as stack:
        await stack.client.start_runtime("sim")
        await report(stack, sim=1)
        await asyncio.sleep(4)
        assert (await stack.until_runtime("sim", "running")).pid > 0, "a request under way keeps it"
        await report(stack, sim=0)
        assert (await stack.until_runtime("sim", "stopped")).reason == "idle"


async def test_a_preferred_runtime_starts_by_itself_but_displaces_nobody_in_use(tmp_path: Path) -> None:
    async with running(tmp_path, two(second="preferredWarm: true")) as stack:
        await stack.until_runtime("b", "running")
        assert (await stack.client.start_runtime("a")).state == "running"
        waiting = await stack.until_runtime("b", "stopped")
        await stack.until(lambda s: "a (minimum-residency) stays" in s.runtimes[1].reason)
        assert waiting.pid == 0


async def test_a_stop_waits_for_requests_under_way(tmp_path: Path) -> None:
    async with running(tmp_path, "runtimes: {sim: {engine: sim}}\n") as stack:
        await stack.client.start_runtime("sim")
        await report(stack, sim=2)
        stop = asyncio.create_task(stack.client.stop_runtime("sim"))
        await stack.until_runtime("sim", "draining")
        assert len(stack.engine_pids()) == 1
        await report(stack, sim=0)
        assert (await stop).state == "stopped"


async def test_a_stop_does_not_wait_longer_than_its_bound(tmp_path: Path) -> None:
    config = "runtimePolicy: {drainTimeoutMs: 500}\nruntimes: {sim: {engine: sim}}\n"
    async with running(tmp_path, config) as stack:
        await stack.client.start_runtime("sim")
        await report(stack, sim=2)
        assert (await stack.client.stop_runtime("sim")).state == "stopped"


async def test_serving_is_stopped_and_started_as_a_whole(tmp_path: Path) -> None:
    config = "models: [{id: a, runtime: a}]\nruntimes: {a: {engine: sim, keepWarm: true}, b: {engine: sim}}\n"
    async with running(tmp_path, config) as stack:
        await stack.until_runtime("a", "running")
        await stack.client.start_runtime("b")
        assert await post(stack, "/v1/serving", {"on": False}) == 200
        await stack.until(lambda s: all(r.state == "stopped" for r in s.runtimes))
        assert stack.engine_pids() == []
        assert await post(stack, "/v1/serving", {"on": True}) == 200
        await stack.until_runtime("a", "running")
        assert (await stack.until_runtime("b", "stopped")).pid == 0
