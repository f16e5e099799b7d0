"""What watches a load, on real processes: warm-up, memory guard, and what the machine has left of earlier lives."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from core.errors import LlmgwError
from tests.fakes.nvidia_smi import FakeNvidiaSmi
from tests.integration.daemon.stack import running

MODEL = "models: [{id: m, runtime: sim}]\n"


def sim(settings: str, options: str = "") -> str:
    return f"{MODEL}runtimes: {{sim: {{engine: sim, options: {{{options}}}, {settings}}}}}\n"


async def test_a_runtime_is_warming_until_its_first_answer_has_come(tmp_path: Path) -> None:
    async with running(tmp_path, sim("warmup: true", "firstTokenS: 4")) as stack:
        await stack.client.start_runtime("sim", wait=False)
        warming = await stack.until_runtime("sim", "warming")
        assert warming.pid > 0
        table = await anext(tables := stack.client.routes())
        await tables.aclose()
        assert not table.models[0].targets[0].ready
        assert (await stack.until_runtime("sim", "running")).pid == warming.pid


async def test_a_warmup_that_is_answered_with_an_error_is_a_failed_start(tmp_path: Path) -> None:
    async with running(tmp_path, sim("warmup: true", "fault: error, status: 500")) as stack:
        with pytest.raises(LlmgwError, match="answered its first request with 500: .*told to fail") as caught:
            await stack.client.start_runtime("sim")
        assert caught.value.code == "runtime_warmup_failed"
        assert (await stack.until_runtime("sim", "failed")).pid == 0 and stack.engine_pids() == []


async def test_a_warmup_that_kills_the_engine_says_how_the_engine_ended(tmp_path: Path) -> None:
    async with running(tmp_path, sim("warmup: true", "fault: crash")) as stack:
        with pytest.raises(LlmgwError, match="was ended by signal 11"):
            await stack.client.start_runtime("sim")
        await stack.until(lambda _: stack.engine_pids() == [])


async def test_a_warmup_that_never_ends_is_bound_by_the_starts_deadline(tmp_path: Path) -> None:
    config = sim("warmup: true, startupTimeoutMs: 2500", "fault: hang")
    async with running(tmp_path, config) as stack:
        with pytest.raises(LlmgwError, match=r"did not serve within 2\.5 s"):
            await stack.client.start_runtime("sim")


async def test_a_stop_does_not_wait_for_a_warmup(tmp_path: Path) -> None:
    async with running(tmp_path, sim("warmup: true", "fault: hang")) as stack:
        await stack.client.start_runtime("sim", wait=False)
        await stack.until_runtime("sim", "warming")
        assert (await stack.client.stop_runtime("sim")).state == "stopped"
        assert stack.engine_pids() == []


async def test_the_memory_guard_ends_the_load_and_nothing_else(tmp_path: Path) -> None:
    runtimes = "runtimes: {a: {engine: sim}, b: {engine: sim, options: {loadTimeS: 60, forkChild: true}}}\n"
    async with running(tmp_path, runtimes) as stack:
        other = await stack.client.start_runtime("a")
        # No machine has so much: whatever loads now is ended at the first look.
        stack.write_config(f"runtimePolicy: {{memorySafety: {{minAvailableMemoryGb: 1000000}}}}\n{runtimes}")
        await stack.client.reload()
        with pytest.raises(LlmgwError, match="loading b was ended: .* MiB of memory were left") as caught:
            await stack.client.start_runtime("b")
        assert caught.value.code == "runtime_memory_safety_abort"
        assert (await stack.until_runtime("b", "failed")).pid == 0
        assert (await stack.until_runtime("a", "running")).pid == other.pid
        assert stack.engine_pids() == [other.pid], "not even its child in a session of its own is left"
        with pytest.raises(LlmgwError, match="loading b was ended"):
            await stack.client.start_runtime("b", reason="request")
        assert stack.log_text().count("runtime_start runtime=b ") == 1, "a client's request does not try again"
        stack.write_config(f"runtimePolicy: {{memorySafety: {{mode: 'off'}}}}\n{runtimes.replace('60', '0')}")
        await stack.client.reload()
        assert (await stack.client.start_runtime("b")).state == "running"


async def test_what_the_memory_guard_ended_is_not_loaded_again_by_the_next_daemon(tmp_path: Path) -> None:
    runtime = "runtimes: {b: {engine: sim, keepWarm: true}}\n"
    async with running(
        tmp_path, f"runtimePolicy: {{memorySafety: {{minAvailableMemoryGb: 1000000}}}}\n{runtime}"
    ) as stack:
        await stack.until_runtime("b", "failed")
        await stack.until(lambda _: "runtime_memory_safety_abort" in stack.unit_text("b"))
        stack.kill(stack.daemon)
        # Memory would suffice now: only what the unit file says keeps it from being tried again.
        stack.write_config(f"runtimePolicy: {{memorySafety: {{mode: 'off'}}}}\n{runtime}")
        stack.start_daemon()
        assert (await stack.until_runtime("b", "failed")).reason.startswith("loading b was ended")
        with pytest.raises(LlmgwError, match="loading b was ended") as caught:
            await stack.client.start_runtime("b", reason="request")
        assert caught.value.code == "runtime_memory_safety_abort"
        assert stack.log_text().count("runtime_start runtime=b ") == 1
        assert (await stack.client.start_runtime("b")).state == "running"
        assert "runtime_memory_safety_abort" not in stack.unit_text("b")


async def test_a_failed_start_stays_failed_over_a_restart_of_the_daemon_and_a_request_tries_again(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, sim("keepWarm: true, warmup: true", "fault: error, status: 500")) as stack:
        await stack.until_runtime("sim", "failed")
        await stack.until(lambda _: "runtime_warmup_failed" in stack.unit_text("sim"))
        stack.kill(stack.daemon)
        stack.start_daemon()
        failed = await stack.until_runtime("sim", "failed")
        assert "answered its first request with 500" in failed.reason and failed.log
        assert stack.log_text().count("runtime_start runtime=sim ") == 1
        with pytest.raises(LlmgwError, match="answered its first request with 500"):
            await stack.client.start_runtime("sim", reason="request")
        assert stack.log_text().count("runtime_start runtime=sim ") == 2


async def test_a_stop_by_an_operator_outlives_what_it_failed_of(tmp_path: Path) -> None:
    async with running(tmp_path, sim("keepWarm: true, warmup: true", "fault: error, status: 500")) as stack:
        await stack.until_runtime("sim", "failed")
        await stack.client.stop_runtime("sim")
        await stack.until(lambda _: "Hold=yes" in stack.unit_text("sim"))
        stack.kill(stack.daemon)
        stack.start_daemon()
        assert (await stack.until_runtime("sim", "stopped")).reason == "stopped by an operator"


def with_card(smi: FakeNvidiaSmi, settings: str = "gpus: 1") -> str:
    """A machine with one card, as the fake nvidia-smi tells of it."""
    return f"hardware: {{nvidiaSmi: {smi.program}, sampleIntervalMs: 500}}\n{sim(settings + ', memoryGb: 1')}"


async def test_an_engine_that_computes_beside_its_card_is_failed(tmp_path: Path) -> None:
    smi = FakeNvidiaSmi(tmp_path / "smi", "rtx4090")
    smi.rewrite("<used>18342 MiB</used>", "<used>300 MiB</used>")  # nobody's memory that could be its own
    async with running(tmp_path, with_card(smi)) as stack:
        await stack.until(lambda s: bool(s.hardware and s.hardware.cards))
        with pytest.raises(LlmgwError, match="was given GPU-.*its processes hold no memory") as caught:
            await stack.client.start_runtime("sim")
        assert caught.value.code == "runtime_computes_elsewhere"
        assert (await stack.until_runtime("sim", "failed")).pid == 0 and stack.engine_pids() == []


async def test_an_engine_on_its_card_is_shown_there_and_its_end_waits_for_the_cards_memory(tmp_path: Path) -> None:
    smi = FakeNvidiaSmi(tmp_path / "smi", "rtx4090")
    config = with_card(smi, "gpus: 1, warmup: true").replace("options: {", "options: {firstTokenS: 6")
    async with running(tmp_path, config) as stack:
        await stack.until(lambda s: bool(s.hardware and s.hardware.cards))
        await stack.client.start_runtime("sim", wait=False)
        pid = (await stack.until_runtime("sim", "warming")).pid
        smi.rewrite("<pid>1820</pid>", f"<pid>{pid}</pid>")
        status = await stack.until_runtime("sim", "running")
        assert status.on.startswith("GPU-") and status.on.endswith("(214 MiB)")
        stop = asyncio.create_task(stack.client.stop_runtime("sim"))
        await stack.until(lambda _: stack.engine_pids() == [])
        assert (await stack.until_runtime("sim", "stopping")).reason == "stopped by an operator"
        smi.rewrite(f"<pid>{pid}</pid>", "<pid>1820</pid>")
        assert (await stop).reason == "stopped by an operator"


async def test_an_engine_that_crashes_again_and_again_waits_longer_each_time(tmp_path: Path) -> None:
    async with running(tmp_path, sim("keepWarm: true")) as stack:
        pid = (await stack.until_runtime("sim", "running")).pid
        os.kill(pid, signal.SIGKILL)
        await stack.until(lambda s: s.runtimes[0].state == "running" and s.runtimes[0].pid not in (0, pid))
        pid = (await stack.until_runtime("sim", "running")).pid
        os.kill(pid, signal.SIGKILL)
        waiting = (await stack.until(lambda s: "started again" in s.runtimes[0].reason)).runtimes[0]
        assert (waiting.state, waiting.reason) == (
            "starting", "the engine was ended by signal 9; it is started again in 1 s",
        )  # fmt: skip
        again = await stack.until(lambda s: s.runtimes[0].state == "running" and s.runtimes[0].pid not in (0, pid))
        assert stack.engine_pids() == [again.runtimes[0].pid]
