"""Who holds memory of which card, and what that says; and the pauses of a crash loop."""

import pytest

from core.hardware import Card, CardProcess
from daemon.runtimes.crash_loop import LIMIT, Crashes
from daemon.runtimes.gpu_memory import Proof, describe_holders, holders, judge_compute


def process(pid: int, mib: int | None = 5000, user: str = "llmgw-engine") -> CardProcess:
    return CardProcess(pid=pid, name="llama-server", memory_mib=mib, user=user)


def card(uuid: str = "GPU-a", *processes: CardProcess, used: int | None = 5000, age_s: float | None = 0.1) -> Card:
    return Card(uuid=uuid, name="H100", memory_used_mib=used, processes=list(processes), age_s=age_s)


FULL = "load_tensors: offloaded 33/33 layers to GPU"
NONE = "load_tensors: offloaded 0/33 layers to GPU"


@pytest.mark.parametrize(
    ("devices", "cards", "log", "expected"),
    [
        (("GPU-a",), [card("GPU-a", process(7))], [], Proof.PROVED),
        (("GPU-a",), [card("GPU-a", process(7, None))], [], Proof.PROVED),
        (("GPU-a",), [card("GPU-a", process(7))], [FULL], Proof.PROVED),
        (("GPU-a",), [card("GPU-a", process(7))], [NONE], Proof.REFUTED),
        (("GPU-a",), [card("GPU-a", process(7))], [NONE, FULL], Proof.PROVED),
        (("GPU-a",), [card("GPU-a", used=3)], [], Proof.REFUTED),
        (("GPU-a",), [card("GPU-a", process(99))], [], Proof.REFUTED),
        (("GPU-a",), [card("GPU-a", process(99, user=""))], [], Proof.UNKNOWN),
        (("GPU-a",), [card("GPU-a", used=70_000)], [], Proof.UNKNOWN),
        (("GPU-a",), [card("GPU-a", used=None)], [], Proof.REFUTED),
        (("GPU-a",), [], [], Proof.UNKNOWN),
        (("GPU-a",), [], [NONE], Proof.REFUTED),
        (("GPU-a",), [card("GPU-a", age_s=60.0, used=3)], [], Proof.UNKNOWN),
        (("GPU-a",), [card("GPU-a", age_s=None, used=3)], [], Proof.UNKNOWN),
        (("GPU-a",), [card("GPU-b", process(7))], [], Proof.UNKNOWN),
        (("GPU-a", "GPU-b"), [card("GPU-a", process(7)), card("GPU-b", process(8))], [], Proof.PROVED),
        (("GPU-a", "GPU-b"), [card("GPU-a", process(7)), card("GPU-b", used=3)], [], Proof.REFUTED),
    ],
)
def test_where_a_runtime_computes(devices: tuple[str, ...], cards: list[Card], log: list[str], expected: Proof) -> None:
    assert judge_compute(devices, cards, {7, 8}, log).proof is expected


def test_what_it_computes_on_is_said_with_the_memory_that_it_holds() -> None:
    assert judge_compute(("GPU-a",), [card("GPU-a", process(7), process(8))], {7, 8}, []).text == "GPU-a (10000 MiB)"


def test_holders_are_named() -> None:
    cards = [card("GPU-a", process(7), process(99)), card("GPU-b", process(7))]
    found = holders(("GPU-a",), cards, {7})
    assert describe_holders(found) == "pid 7 (llama-server) holds 5000 MiB of GPU-a"


def test_each_crash_waits_longer_than_the_one_before_and_the_sixth_is_the_last() -> None:
    crashes, pauses = Crashes(), []
    for second in range(LIMIT):
        crashes = crashes.add(second * 60.0)
        pauses.append(crashes.pause_s)
        assert not crashes.is_loop
    assert pauses == [0, 1, 2, 4, 8]
    assert crashes.add(301.0).is_loop


def test_a_crash_now_and_then_is_no_loop() -> None:
    crashes = Crashes()
    for hour in range(100):
        crashes = crashes.add(hour * 3600.0)
    assert not crashes.is_loop and crashes.pause_s == 0
