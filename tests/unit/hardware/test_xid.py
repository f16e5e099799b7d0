"""The driver's messages in a recorded kernel log, and what each means for a card."""

from pathlib import Path

import pytest

from core.hardware import Card
from daemon.hardware.health import CardXids, judge_card
from daemon.hardware.xid import POLICIES, XidEvent, parse_kernel_line

RECORDED = Path(__file__).resolve().parents[2] / "data/kernel-log/xids.txt"
CARD = Card(uuid="GPU-1", name="NVIDIA H100 80GB HBM3", index=0, pci="0000:19:00.0", compute_capability="9.0")
OUT = {46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 123, 136, 140, 143, 151, 155, 156, 158}
"""Which NVIDIA's catalog answers with a reset or a restart of the machine."""


def events() -> list[XidEvent]:
    return [event for line in RECORDED.read_text().splitlines() if (event := parse_kernel_line(line))]


def folded(*given: XidEvent) -> CardXids:
    xids = CardXids()
    for event in given:
        xids = xids.add(event)
    return xids


def verdict(action: str, before: str = "None") -> XidEvent:
    text = f"GPU recovery action changed from 0x0 ({before}) to 0x1 ({action})"
    return XidEvent(CARD.pci, 154, text, 9.0)


def test_the_recorded_log_holds_every_number_of_the_policy() -> None:
    assert {event.xid for event in events()} == {*POLICIES, 999}
    assert {event.pci for event in events()} == {"0000:19:00.0"}


@pytest.mark.parametrize("event", events(), ids=lambda event: str(event.xid))
def test_each_xid_only_counts_or_takes_its_card_out_and_says_how_it_comes_back(event: XidEvent) -> None:
    xids = folded(event, event)
    problems = [problem for problem in judge_card(CARD, xids) if problem.code != "xid_154"]

    assert xids.counts[event.xid].count == 2
    if event.xid in OUT:
        (problem,) = problems
        assert problem.blocks and problem.clearable and f"XID {event.xid}, 2 x" in problem.message
        assert "reboot" in problem.hint or "replace" in problem.hint
        assert "{" not in problem.hint
    else:
        assert problems == []


@pytest.mark.parametrize(
    ("line", "pci", "xid", "at_s"),
    [
        ("[12345.678901] NVRM: Xid (PCI:0000:19:00): 79, pid=1, GPU is gone.", "0000:19:00.0", 79, 12345.678901),
        ("6,1234,567890123,-;NVRM: Xid (PCI:0000:3B:00): 31, pid=1234", "0000:3b:00.0", 31, 567.890123),
        ("[  966.503025] host kernel: NVRM: Xid (0000:01:00): 31, Ch 0000000b", "0000:01:00.0", 31, 966.503025),
        ("NVRM: Xid (PCI:000f:01:00): 119, Timeout", "000f:01:00.0", 119, 0.0),
        ("[1.0] NVRM: Xid (PCI:0000:19:00): 45", "0000:19:00.0", 45, 1.0),
    ],
)  # fmt: skip
def test_a_line_reads_the_same_from_every_source(line: str, pci: str, xid: int, at_s: float) -> None:
    event = parse_kernel_line(line)
    assert event is not None
    assert (event.pci, event.xid, event.at_s) == (pci, xid, at_s)


@pytest.mark.parametrize("line", ["", "usb 1-1: new device", "NVRM: Xid", "NVRM: Xid (PCI:x): y", "NVRM: Xid (): 79x"])
def test_what_is_no_message_is_nothing(line: str) -> None:
    assert parse_kernel_line(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "6,1," + "9" * 5000 + ",-;NVRM: Xid (PCI:0000:19:00): 79, x",
        "[" + "9" * 500 + ".0] NVRM: Xid (PCI:0000:19:00): 79, x",
        "[1.0] NVRM: Xid (PCI:0000:19:00): " + "7" * 5000,
    ],
)
def test_numbers_that_no_kernel_writes_break_nothing(line: str) -> None:
    event = parse_kernel_line(line)
    assert event is None or event.at_s == 0.0


@pytest.mark.parametrize(
    ("action", "blocks"),
    [("GPU Reset Required", True), ("Node Reboot Required", True), ("Drain and Reset", True), ("Drain P2P", False)],
)
def test_the_drivers_own_verdict_decides(action: str, blocks: bool) -> None:
    (problem,) = judge_card(CARD, folded(verdict(action)))
    assert (problem.code, problem.blocks) == ("xid_154", blocks)
    assert action in problem.message and problem.hint


def test_the_verdict_none_brings_a_card_back_by_itself_and_a_later_error_takes_it_out_again() -> None:
    error = XidEvent(CARD.pci, 95, "", 1.0)
    recovered = folded(error, verdict("GPU Reset Required"), verdict("None", "GPU Reset Required"))
    assert judge_card(CARD, recovered) == []
    assert recovered.counts[95].count == 1
    assert [problem.code for problem in judge_card(CARD, recovered.add(error))] == ["xid_95"]
