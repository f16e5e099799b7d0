"""Which cards a runtime gets, and what its unit may open."""

import pytest

from core.hardware import Card, Problem
from daemon.runtimes.admission import Plan, Verdict, best_plan
from daemon.runtimes.devices import Devices, Placement, choices, device_nodes, wanted_devices


def card(index: int, free_gib: int = 24, **fields: object) -> Card:
    fields.setdefault("placeable", True)
    return Card(uuid=f"GPU-{index}", name="x", index=index, available_mib=free_gib << 10, **fields)  # type: ignore[arg-type]


TWO = [card(0, 10), card(1, 20)]
OUT = card(2, 99, placeable=False)
BROKEN = card(3, 9, placeable=False, problems=[Problem(code="xid_79", message="fell off the bus", blocks=True)])
DESKTOP = card(4, 9, placeable=False, problems=[Problem(code="card_without_driver", message="nouveau", blocks=True)])


@pytest.mark.parametrize(
    ("setting", "engine_can", "cards", "expected"),
    [
        (None, True, TWO, Devices(count=1)),
        (None, True, [], Devices()),
        (None, True, [OUT], Devices()),
        (None, True, [BROKEN], Devices(count=1)),
        (None, True, [DESKTOP], Devices()),
        (None, False, TWO, Devices()),
        (0, True, TWO, Devices()),
        (2, True, [], Devices(count=2)),
        (["1"], False, TWO, Devices(count=1, names=("1",))),
    ],
)
def test_what_is_wanted(
    setting: int | list[str] | None, engine_can: bool, cards: list[Card], expected: Devices
) -> None:
    assert wanted_devices(setting, engine_can=engine_can, cards=cards) == expected


@pytest.mark.parametrize(
    ("wanted", "cards", "expected"),
    [
        (Devices(count=1), TWO, [["GPU-1"], ["GPU-0"]]),
        (Devices(count=2), TWO, [["GPU-1", "GPU-0"]]),
        (Devices(count=3), TWO, []),
        (Devices(count=1), [OUT], []),
        (Devices(count=1), [*TWO, OUT], [["GPU-1"], ["GPU-0"]]),
        (Devices(count=1, names=("0",)), TWO, [["GPU-0"]]),
        (Devices(count=2, names=("GPU-0", "1")), TWO, [["GPU-0", "GPU-1"]]),
        (Devices(count=1, names=("9",)), TWO, []),
        (Devices(count=1, names=("2",)), [*TWO, OUT], []),
        (Devices(), TWO, []),
    ],
)
def test_the_emptiest_cards_come_first(wanted: Devices, cards: list[Card], expected: list[list[str]]) -> None:
    assert [[one.uuid for one in choice] for choice in choices(wanted, cards)] == expected


def test_a_unit_may_open_its_own_cards_and_the_control_nodes_only() -> None:
    nodes = Placement(("GPU-1",), tuple(TWO)).nodes
    assert nodes == ("/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    assert Placement((), tuple(TWO)).nodes == ()


def test_an_instance_of_a_card_needs_the_cards_node_and_the_capability() -> None:
    whole = card(3, mig=True)
    instance = Card(uuid="MIG-1", name="x", parent="GPU-3", placeable=True)
    assert device_nodes([instance], [whole, instance])[0] == "/dev/nvidia3"
    assert "char-nvidia-caps" in device_nodes([instance], [whole, instance])


@pytest.mark.parametrize(
    ("plans", "expected"),
    [
        ([(Verdict.ADMITTED, ("a", "b")), (Verdict.ADMITTED, ("c",))], ("c",)),
        ([(Verdict.BUSY, ()), (Verdict.ADMITTED, ("a",))], ("a",)),
        ([(Verdict.ADMITTED, ()), (Verdict.ADMITTED, ())], ()),
    ],
)
def test_the_plan_that_evicts_least_wins(
    plans: list[tuple[Verdict, tuple[str, ...]]], expected: tuple[str, ...]
) -> None:
    assert best_plan([Plan("r", verdict, "", evict) for verdict, evict in plans]).evict == expected


def test_the_mildest_refusal_is_told() -> None:
    plans = [Plan("r", Verdict.IMPOSSIBLE, ""), Plan("r", Verdict.BUSY, ""), Plan("r", Verdict.KEEP_WARM, "")]
    assert best_plan(plans).verdict is Verdict.BUSY
