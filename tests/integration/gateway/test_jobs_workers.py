"""Jobs over several real workers: any answers for any, and one that is killed leaves an honest state behind."""

import asyncio
import json
import os
import signal
from pathlib import Path

from tests.fakes.daemon_socket import FakeDaemon
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.harness import chat, prepare_layout, read_answer, render_request, target_of
from tests.integration.gateway.jobs import JOBS, Address, get, job, post, until, wait_job
from tests.integration.gateway.sim import sim
from tests.integration.gateway.workers import Workers, workers
from tests.patience import SOON_S
from tests.unit.gateway.tables import model, table, target


async def ask_worker(running: Workers, pid: int, request: bytes) -> dict[str, object]:
    """Have this very worker answer, on a connection that it happened to take."""
    async with asyncio.timeout(SOON_S):
        while True:
            reader, writer = await asyncio.open_connection(*running.address)
            try:
                writer.write(render_request("/health", method="GET"))
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                if json.loads(await reader.readexactly(size))["pid"] != pid:
                    continue
                writer.write(request)
                answer = read_answer(await reader.read())
                found = json.loads(answer.body)
                assert isinstance(found, dict)
                return found
            finally:
                writer.close()


def request(method: str, path: str, body: bytes = b"") -> bytes:
    return render_request(path, body, {"connection": "close"}, method)


async def two(running: Workers) -> tuple[int, int]:
    """The workers, once both serve: one that is still being made misses a signal."""
    one, other, *_ = sorted(await running.wait_children(2))
    for pid in (one, other):
        await ask_worker(running, pid, request("GET", JOBS))
    return one, other


async def test_a_job_of_one_worker_is_read_and_cancelled_through_another_within_a_second(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    body = job(chat(max_tokens=100_000, sim={"tokens": 100_000, "tokensPerS": 50}))
    async with sim(tmp_path / "e") as engine:
        routes = table(model("m", target(port=engine.port, key_file=str(engine.key_file))))
        async with FakeDaemon(layout.daemon_socket, routes), workers(tmp_path, 2) as running:
            one, other = await two(running)
            made = await ask_worker(running, one, request("POST", JOBS, body))
            await engine.wait_open()
            await wait_job(running.address, made["id"], "running")
            seen = await ask_worker(running, other, request("GET", f"{JOBS}/{made['id']}"))
            gone = await ask_worker(running, other, request("DELETE", f"{JOBS}/{made['id']}"))
            counts = await engine.stats(closed_early=1)
    assert (seen["state"], gone["state"], counts["closedEarly"]) == ("running", "cancelled", 1)


async def test_a_killed_workers_running_job_fails_and_its_waiting_ones_are_done_by_another(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with FakeUpstream(Behaviour(head_pause_s=60)) as engine:
        routes = table(model("m", target_of(engine, max_concurrency=1)))
        async with FakeDaemon(layout.daemon_socket, routes), workers(tmp_path, 2) as running:
            victim, _ = await two(running)
            made = [await ask_worker(running, victim, request("POST", JOBS, job())) for _ in range(3)]
            await wait_job(running.address, made[0]["id"], "running")
            os.kill(victim, signal.SIGKILL)
            failed = await wait_job(running.address, made[0]["id"], "failed")
            engine.release()
            done = [await wait_job(running.address, each["id"], "done") for each in made[1:]]
            left = [path.name for path in (layout.gateway_state / "jobs").glob("worker-*")]
    assert isinstance(failed["error"], dict)
    assert failed["error"]["code"] == "job_interrupted"
    assert [each["tries"] for each in done] == [1, 1]
    assert not [name for name in left if name.startswith(f"worker-{victim}-")]


async def test_jobs_outlive_the_whole_gateway_being_killed(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with FakeUpstream(Behaviour(head_pause_s=60)) as engine:
        routes = table(model("m", target_of(engine, max_concurrency=1)))
        async with FakeDaemon(layout.daemon_socket, routes):
            async with workers(tmp_path, 2) as running:
                made = [await post(running.address) for _ in range(2)]
                await wait_job(running.address, made[0]["id"], "running")
                os.killpg(running.process.pid, signal.SIGKILL)
                await running.process.wait()
            engine.release()
            async with workers(tmp_path, 2) as running:
                first = await wait_job(running.address, made[0]["id"], "failed")
                second = await wait_job(running.address, made[1]["id"], "done")
    assert isinstance(first["error"], dict)
    assert (first["error"]["code"], second["tries"]) == ("job_interrupted", 1)


async def test_a_reload_in_good_order_loses_no_job(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with FakeUpstream(Behaviour(head_pause_s=60)) as engine:
        routes = table(model("m", target_of(engine, max_concurrency=1)))
        async with FakeDaemon(layout.daemon_socket, routes), workers(tmp_path, 2) as running:
            before = set(await two(running))
            made = [await post(running.address) for _ in range(2)]
            await wait_job(running.address, made[0]["id"], "running")
            running.process.send_signal(signal.SIGHUP)
            await wait_replaced(running, before)
            engine.release()
            seen = [await wait_job(running.address, each["id"], "done") for each in made]
    assert [each["tries"] for each in seen][1] == 1


async def wait_replaced(running: Workers, before: set[int]) -> None:
    async def are_gone() -> bool:
        return not running.children() & before

    await until(are_gone)


async def test_many_jobs_made_at_once_are_each_done_once(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine, max_concurrency=4)))
        async with FakeDaemon(layout.daemon_socket, routes), workers(tmp_path, 2) as running:
            made = await asyncio.gather(*(post(running.address) for _ in range(60)))
            seen = await asyncio.gather(*(finished(running.address, each["id"]) for each in made))
    assert {each["state"] for each in seen} == {"done"}
    assert len(engine.seen) == 60


async def finished(address: Address, job_id: object) -> dict[str, object]:
    await wait_job(address, job_id, "done", "failed", timeout_s=60)
    found = json.loads((await get(address, job_id)).body)
    assert isinstance(found, dict)
    return found
