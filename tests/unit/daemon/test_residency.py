"""Who leaves because nobody asked for it, and what keeps an eviction in mind."""

from dataclasses import replace

import pytest

from daemon.intents import Intents
from daemon.runtimes.residency import Stay, idle_runtimes

IDLE = Stay("r", keep_warm=False, idle_stop_s=60.0, busy=False, idle_s=61.0, running_s=1000.0)


@pytest.mark.parametrize(
    ("stay", "leaves"),
    [
        (IDLE, True),
        (replace(IDLE, idle_s=59.0), False),
        (replace(IDLE, idle_s=None), True),
        (replace(IDLE, idle_s=None, running_s=59.0), False),
        (replace(IDLE, running_s=59.0), False),
        (replace(IDLE, idle_stop_s=0.0), False),
        (replace(IDLE, busy=True), False),
        (replace(IDLE, keep_warm=True), False),
        (replace(IDLE, ours=False), False),
    ],
)
def test_who_leaves_when_idle(stay: Stay, leaves: bool) -> None:
    assert idle_runtimes([stay]) == (["r"] if leaves else [])


def test_an_eviction_is_kept_in_mind_until_it_is_over_or_no_longer_ours_to_carry_out() -> None:
    intents = Intents()
    intents.request("r", "operator")
    intents.evict("r", "idle")
    assert (intents.evicted, intents.requested) == ({"r": "idle"}, {})
    intents.settle(["other"])
    assert intents.evicted == {"r": "idle"}
    intents.settle(["r"])
    assert intents.evicted == {}
