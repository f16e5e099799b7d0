"""The sampler with real processes: what a broken driver does to the node, and what it does not."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.hardware.sampler import CardUnknown
from tests.fakes.nvidia_smi import FakeNvidiaSmi
from tests.integration.hardware.bench import PATIENCE_S, Bench, codes, codes_of, running, sampling

_FREEZER = Path("/sys/fs/cgroup/freezer")
_H100_0, _H100_1 = "GPU-26435b9c-9318-502f-8232-9456221ce2b4", "GPU-faa5ee62-66fd-504a-9307-25ca60b734a4"


async def test_cards_are_read_with_their_ages_and_judged(tmp_path: Path) -> None:
    async with sampling(tmp_path, "v100x2") as bench:
        first = await bench.until_card(0, lambda c: c.placeable)
        assert first.available_mib == 2251 and first.age_s is not None and first.age_s < PATIENCE_S
        second = await bench.until_card(1, lambda c: not c.placeable)
        assert codes_of(second) == {"ecc_uncorrected", "nvlink_errors"}
        assert second.available_mib is None


async def test_a_hanging_nvidia_smi_is_killed_told_and_got_over(tmp_path: Path) -> None:
    async with sampling(tmp_path, "rtx4090") as bench:
        bench.smi.mode("hang")
        await bench.until(lambda s: "nvidia_smi_timed_out" in codes(s))
        stale = await bench.until_card(0, lambda c: not c.placeable)
        assert codes_of(stale) == {"card_data_stale"} and stale.memory_total_mib == 24564
        assert len(bench.smi.living()) <= 1

        bench.smi.mode("ok")
        await bench.until_card(0, lambda c: c.placeable)
        assert codes(bench.sampler.state()) == set()


@contextlib.contextmanager
def frozen_cgroup() -> Iterator[Path]:
    """A version 1 freezer: what joins it sleeps uninterruptibly, as in a broken driver."""
    if not (_FREEZER / "cgroup.procs").exists() or os.geteuid() != 0:
        pytest.skip("needs root and a version 1 freezer: sudo make test on a machine with hybrid cgroups")
    group = _FREEZER / f"llmgw-hardware-{os.getpid()}"
    group.mkdir()
    (group / "freezer.state").write_text("FROZEN")
    try:
        yield group
    finally:
        (group / "freezer.state").write_text("THAWED")
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        while (group / "cgroup.procs").read_text().strip():
            os.sched_yield()
        group.rmdir()


@pytest.mark.root
async def test_a_child_that_nothing_kills_is_joined_by_no_other(tmp_path: Path) -> None:
    with frozen_cgroup() as group:
        async with sampling(tmp_path, "rtx4090") as bench:
            bench.smi.mode(f"frozen {group}")
            await bench.until(lambda s: "nvidia_smi_stuck" in codes(s))
            (stuck,) = bench.smi.living()
            calls = len(bench.smi.calls())
            await bench.until_card(0, lambda c: not c.placeable)
            problem = next(p for p in bench.sampler.state().problems if p.code == "nvidia_smi_stuck")
            assert str(stuck) in problem.message and "reboot" in problem.hint
            assert (len(bench.smi.calls()), bench.smi.living()) == (calls, [stuck])

            bench.smi.mode("ok")
            (group / "freezer.state").write_text("THAWED")
            await bench.until_card(0, lambda c: c.placeable)
            assert codes(bench.sampler.state()) == set()


async def test_garbage_is_told_and_changes_nothing_that_is_known(tmp_path: Path) -> None:
    async with sampling(tmp_path, "rtx4090") as bench:
        bench.smi.mode("garbage")
        state = await bench.until(lambda s: "nvidia_smi_unreadable" in codes(s))
        assert [c.card_class for c in state.cards] == ["rtx-4090"]
        assert all(problem.message.isprintable() for problem in state.problems)


@pytest.mark.parametrize("name", ["driver-mismatch", "no-driver", "insufficient-permissions", "bad-field"])
async def test_a_driver_that_serves_nobody_takes_every_card_out(tmp_path: Path, name: str) -> None:
    async with sampling(tmp_path, "v100x2") as bench:
        bench.smi.mode(f"fail {name}")
        state = await bench.until(lambda s: bool(s.problems) and not any(c.placeable for c in s.cards))
        assert len(state.cards) == 2
        assert all(problem.hint for problem in state.problems)


async def test_a_card_that_falls_off_the_bus_is_out_and_the_others_stay_young(tmp_path: Path) -> None:
    async with sampling(tmp_path, "h100-mig") as bench:
        bench.smi.mode(f"lose 00000000:3B:00.0 {_H100_1}")
        lost = await bench.until_card(1, lambda c: not c.placeable)
        assert codes_of(lost) == {"nvidia_card_lost"} and "reboot" in lost.problems[0].hint

        await bench.until_card(1, lambda c: (c.age_s or 0) > bench.settings.rules.stale_after_s)
        instances = [c for c in bench.sampler.state().cards if c.parent == _H100_0]
        assert [c.placeable for c in instances] == [True, True, True]
        assert all(c.age_s is not None and c.age_s < bench.settings.rules.stale_after_s for c in instances)

        bench.smi.mode("ok")
        await bench.until_card(1, lambda c: c.placeable)


async def test_a_card_that_is_gone_leaves_the_list_and_is_told_until_it_is_cleared(tmp_path: Path) -> None:
    async with sampling(tmp_path, "v100x2") as bench:
        bench.smi.machine("rtx4090")
        state = await bench.until(lambda s: "card_gone" in codes(s))
        assert [c.card_class for c in state.cards] == ["rtx-4090"]
        assert len(state.problems) == 2
        for other in ("1", "a", "NVIDIA", "0000:1a", ""):
            with pytest.raises(CardUnknown):
                bench.sampler.clear(other)
        assert bench.sampler.clear("0000:1a:00.0").cleared == ["GPU-15081673-1e95-5253-a22c-014835dab62c"]
        (left,) = bench.sampler.state().problems
        assert "0000:1c:00.0" in left.message
        bench.smi.machine("v100x2")
        await bench.until(lambda s: {p.message.split()[1] for p in s.problems} == {"GeForce"})


async def test_a_foreign_process_leaves_placement_and_its_memory_returns_when_it_goes(tmp_path: Path) -> None:
    async with sampling(tmp_path, "rtx4090") as bench:
        busy = await bench.until_card(0, lambda c: c.foreign_mib is not None)
        assert (busy.foreign_mib, busy.available_mib) == (17902 + 214, 5865)

        bench.owners[9041] = "qwen"
        ours = await bench.until_card(0, lambda c: any(p.runtime == "qwen" for p in c.processes))
        assert ours.foreign_mib == 214

        bench.owners.clear()
        bench.smi.rewrite("<pid>9041</pid>", "<pid>1821</pid>")
        bench.smi.rewrite("<used_memory>17902 MiB</used_memory>", "<used_memory>2 MiB</used_memory>")
        bench.smi.rewrite("<free>5865 MiB</free>", "<free>23765 MiB</free>")
        gone = await bench.until_card(0, lambda c: c.foreign_mib == 216)
        assert gone.available_mib == 23765


async def test_a_card_in_mig_mode_with_nothing_carved_is_out_with_the_reason(tmp_path: Path) -> None:
    async with sampling(tmp_path, "rtx4090") as bench:
        bench.smi.rewrite("<current_mig>N/A</current_mig>", "<current_mig>Enabled</current_mig>")
        card = await bench.until_card(0, lambda c: not c.placeable)
        assert codes_of(card) == {"mig_empty"} and "mig" in card.problems[0].hint


async def test_an_xid_takes_its_card_out_at_once_and_clear_brings_it_back_for_good(tmp_path: Path) -> None:
    async with sampling(tmp_path, "h100-mig") as bench:
        bench.say("[  100.5] NVRM: Xid (PCI:0000:3B:00): 31, pid=1, MMU Fault")
        counted = await bench.until_card(1, lambda c: bool(c.xids))
        assert counted.placeable and codes_of(counted) == set()

        bench.say("[  101.5] NVRM: Xid (PCI:0000:3B:00): 79, GPU has fallen off the bus.")
        out = await bench.until_card(1, lambda c: not c.placeable)
        assert codes_of(out) == {"xid_79"} and out.available_mib is None

        result = bench.sampler.clear("1")
        assert (result.cleared, result.remaining) == ([_H100_1], [])
        assert (await bench.until_card(1, lambda c: c.placeable)).xids == []
        bench.sampler.clear("1")  # once more, with nothing to clear, must not bring the past back

        again = bench.new_sampler()
        async with running(again):
            bench.sampler = again
            bench.say("[  102.5] NVRM: Xid (PCI:0000:3B:00): 45, pid=2")
            seen = await bench.until_card(1, lambda c: bool(c.xids))
            assert [entry.xid for entry in seen.xids] == [45] and seen.placeable
            bench.say("[  103.5] NVRM: Xid (PCI:0000:3B:00): 79, GPU has fallen off the bus.")
            await bench.until_card(1, lambda c: not c.placeable)


async def test_an_xid_of_a_divided_card_takes_its_instances_out(tmp_path: Path) -> None:
    async with sampling(tmp_path, "h100-mig") as bench:
        bench.say("[  100.5] NVRM: Xid (PCI:0000:19:00): 95, Uncontained")
        state = await bench.until(lambda s: not any(c.placeable for c in s.cards if c.parent == _H100_0))
        assert all("xid_95" in codes_of(c) for c in state.cards if c.parent == _H100_0)
        assert next(c for c in state.cards if c.index == 1).placeable


async def test_errors_that_were_accepted_count_again_when_there_are_more(tmp_path: Path) -> None:
    async with sampling(tmp_path, "v100x2") as bench:
        await bench.until_card(1, lambda c: "ecc_uncorrected" in codes_of(c))
        bench.sampler.clear("1")
        assert (await bench.until_card(1, lambda c: c.placeable)).ecc_uncorrected == 2
        bench.smi.rewrite("<total>2</total>", "<total>3</total>")
        bench.smi.rewrite("<device_memory>2</device_memory>", "<device_memory>3</device_memory>")
        await bench.until_card(1, lambda c: not c.placeable)


async def test_clear_says_what_keeps_a_card_out(tmp_path: Path) -> None:
    async with sampling(tmp_path, "h100-mig") as bench:
        bench.smi.rewrite("<gpu_recovery_action>None<", "<gpu_recovery_action>Reset<")
        await bench.until_card(1, lambda c: not c.placeable)
        result = bench.sampler.clear("all")
        assert len(result.cleared) == 2
        assert {problem.code for c in result.remaining for problem in c.problems} == {"recovery_needed"}


async def test_a_new_program_is_used_after_a_reload(tmp_path: Path) -> None:
    async with sampling(tmp_path, "rtx4090") as bench:
        other = FakeNvidiaSmi(tmp_path / "other", "gb10")
        places = bench.settings.places
        bench.use(places=type(places)(nvidia_smi=str(other.program), nvidia_smi_timeout_s=5.0, ib_root=places.ib_root))
        state = await bench.until(lambda s: any(c.card_class == "gb10" for c in s.cards))
        (card,) = state.cards
        assert card.unified and card.memory_total_mib == (state.memory.total_mib if state.memory else 0)


async def test_a_machine_without_the_program_has_no_cards_and_no_problem(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "gb10")
    bench.smi.program.unlink()
    async with running(bench.sampler):
        state = await bench.until(lambda s: s.memory is not None and s.cpu is not None and bool(s.links))
        assert (state.cards, codes(state)) == ([], set())
        assert state.memory is not None and state.memory.total_mib


async def test_every_source_says_how_old_it_is(tmp_path: Path) -> None:
    async with sampling(tmp_path, "rtx4090") as bench:
        state = await bench.until(lambda s: all(source.age_s is not None for source in s.sources))
        assert [source.name for source in state.sources] == [
            "nvidia-smi", "udev", "infiniband", "cpu", "memory", "disks", "links", "kernel-log",
        ]  # fmt: skip
        assert all(source.age_s is not None and 0 <= source.age_s < PATIENCE_S for source in state.sources)


async def test_the_kernels_log_is_followed_only_where_there_are_cards(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "rtx4090")
    bench.smi.mode("fail no-devices")
    bench.say("[  100.5] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.")
    async with running(bench.sampler):
        state = await bench.until(lambda s: s.memory is not None and len(bench.smi.calls()) >= 2)
        assert next(source.age_s for source in state.sources if source.name == "kernel-log") is None
        bench.smi.mode("ok")
        out = await bench.until_card(0, lambda c: bool(c.xids))
        assert codes_of(out) == {"xid_79"}
