"""The daemon with a fake nvidia-smi: a broken driver does not touch what serves, and our own processes are ours."""

import time
from pathlib import Path

import pytest

from core.errors import NotFoundError
from core.hardware import Card, HardwareState
from tests.fakes.nvidia_smi import FakeNvidiaSmi
from tests.integration.daemon.stack import Stack, running
from tests.patience import MOMENT_S

SIM = "models: [{id: m, runtime: sim}]\nruntimes:\n  sim: {engine: sim, keepWarm: true}\n"
AT_ONCE_S = MOMENT_S


def config(smi: FakeNvidiaSmi, kernel_log: Path) -> str:
    return (
        f"{SIM}hardware: {{nvidiaSmi: {smi.program}, nvidiaSmiTimeoutMs: 1000, sampleIntervalMs: 500,"
        f" kernelLog: {kernel_log}}}\n"
    )


async def hardware_until(stack: Stack, word: str) -> HardwareState:
    """Until a problem of the node or of a card has that code, or a card that class."""
    state = await stack.until(lambda s: s.hardware is not None and word in words(s.hardware))
    assert state.hardware is not None
    return state.hardware


def words(state: HardwareState) -> set[str]:
    of_cards = {word for card in state.cards for word in (card.card_class, *(p.code for p in card.problems))}
    return of_cards | {problem.code for problem in state.problems}


def only(state: HardwareState) -> Card:
    (card,) = state.cards
    return card


@pytest.fixture
def smi(tmp_path: Path) -> FakeNvidiaSmi:
    return FakeNvidiaSmi(tmp_path / "smi", "rtx4090")


async def test_a_hanging_nvidia_smi_leaves_serving_untouched(tmp_path: Path, smi: FakeNvidiaSmi) -> None:
    log = tmp_path / "kmsg"
    log.touch()
    async with running(tmp_path, config(smi, log)) as stack:
        before = await stack.until_runtime("sim", "running")
        await hardware_until(stack, "rtx-4090")
        smi.mode("hang")
        await hardware_until(stack, "nvidia_smi_timed_out")

        for ask in (stack.client.state, stack.client.hardware):
            began = time.monotonic()
            await ask()
            assert time.monotonic() - began < AT_ONCE_S
        restarted = await stack.client.restart_runtime("sim")
        assert restarted.state == "running" and restarted.pid != before.pid
        report = await stack.client.doctor()
        assert any(f.check == "nvidia driver" and f.status == "blocks" and f.remedy for f in report.findings)
        assert len(smi.living()) <= 1

        smi.mode("ok")
        await stack.until(lambda s: s.hardware is not None and not s.hardware.problems)


async def test_our_own_process_on_a_card_is_ours_and_anybody_elses_is_foreign(
    tmp_path: Path, smi: FakeNvidiaSmi
) -> None:
    log = tmp_path / "kmsg"
    log.touch()
    async with running(tmp_path, config(smi, log)) as stack:
        runtime = await stack.until_runtime("sim", "running")
        smi.rewrite("<pid>9041</pid>", f"<pid>{runtime.pid}</pid>")
        state = await stack.until(
            lambda s: s.hardware is not None and any(p.runtime == "sim" for c in s.hardware.cards for p in c.processes)
        )
        assert state.hardware is not None
        assert only(state.hardware).foreign_mib == 214

        await stack.client.stop_runtime("sim")
        gone = await stack.until(lambda s: s.hardware is not None and only(s.hardware).foreign_mib == 17902 + 214)
        assert gone.hardware is not None


async def test_an_xid_is_cleared_through_the_socket_and_stays_so_over_a_crash(
    tmp_path: Path, smi: FakeNvidiaSmi
) -> None:
    log = tmp_path / "kmsg"
    log.write_text("[   50.1] NVRM: Xid (PCI:0000:01:00): 119, Timeout waiting for RPC from GSP!\n")
    async with running(tmp_path, config(smi, log)) as stack:
        out = only(await hardware_until(stack, "xid_119"))
        assert not out.placeable
        with pytest.raises(NotFoundError):
            await stack.client.clear_hardware("7")
        assert (await stack.client.clear_hardware("0000:01:00.0")).remaining == []

        stack.kill(stack.daemon)
        stack.start_daemon()
        back = await stack.until(lambda s: s.hardware is not None and any(c.placeable for c in s.hardware.cards))
        assert back.hardware is not None and "xid_119" not in words(back.hardware)


async def test_a_reload_changes_how_the_hardware_is_looked_at(tmp_path: Path, smi: FakeNvidiaSmi) -> None:
    log = tmp_path / "kmsg"
    log.touch()
    async with running(tmp_path, config(smi, log)) as stack:
        await hardware_until(stack, "rtx-4090")
        other = FakeNvidiaSmi(tmp_path / "other", "gb10")
        stack.write_config(config(other, log))
        await stack.client.reload()
        await hardware_until(stack, "gb10")
        assert only(await stack.client.hardware(fresh=True)).unified
