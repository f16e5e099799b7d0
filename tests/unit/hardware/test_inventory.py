"""What readings add up to: health, placement, failures, ages. Time is a number here."""

from dataclasses import replace

import msgspec
import pytest

from core.hardware import Card, CardProcess, Driver, HardwareState, Memory, Nvlink, PciDevice, Problem
from daemon.hardware.health import CardXids, judge_card
from daemon.hardware.inventory import Inventory, Reading, Rules, add_failure, add_report, build_state
from daemon.hardware.placement import place_cards
from daemon.hardware.xid import XidEvent
from tests.unit.hardware.machines import details_of, report_of

H100 = Card(
    uuid="GPU-1", name="NVIDIA H100", index=0, pci="0000:19:00.0", compute_capability="9.0", age_s=1.0,
    memory_total_mib=1000, memory_used_mib=600, memory_free_mib=400,
)  # fmt: skip
MISMATCH = Problem(code="nvidia_library_mismatch", message="m", hint="reboot", blocks=True)
STUCK = Problem(code="nvidia_smi_stuck", message="m", hint="reboot")
LOST = Problem(code="nvidia_card_lost", message="m", hint="reboot", blocks=True)
NO_DEVICES = Problem(code="nvidia_no_devices", message="m", hint="look", blocks=True)


def with_(card: Card, **changes: object) -> Card:
    return msgspec.structs.replace(card, **changes)


@pytest.mark.parametrize(
    ("changes", "codes", "blocks"),
    [
        ({}, [], False),
        ({"ecc_uncorrected": 0, "remap_pending": False}, [], False),
        ({"ecc_uncorrected": 2}, ["ecc_uncorrected"], False),
        ({"ecc_uncorrected": 2, "compute_capability": "7.0"}, ["ecc_uncorrected"], True),
        ({"ecc_uncorrected": 2, "compute_capability": ""}, ["ecc_uncorrected"], True),
        ({"remap_pending": True}, ["remap_pending"], False),
        ({"remap_failed": True}, ["remap_failed"], True),
        ({"recovery_action": "Reset"}, ["recovery_needed"], True),
        ({"recovery_action": "Reboot"}, ["recovery_needed"], True),
        ({"recovery_action": "Drain and Reset"}, ["recovery_needed"], True),
        ({"recovery_action": "Drain P2P"}, ["recovery_needed"], False),
        ({"throttled_by": ["hw_thermal_slowdown"], "temperature_c": 91}, ["throttled"], False),
        ({"throttled_by": ["sw_power_cap"]}, [], False),
        ({"nvlinks": [Nvlink(link=3, replay_errors=2353)]}, ["nvlink_errors"], False),
        ({"nvlinks": [Nvlink(link=3, replay_errors=5, crc_errors=0)]}, [], False),
        ({"nvlinks": [Nvlink(link=0, recovery_errors=1)]}, ["nvlink_errors"], False),
        ({"nvlinks": [Nvlink(link=0)]}, [], False),
    ],
)
def test_what_is_wrong_with_a_card(changes: dict[str, object], codes: list[str], blocks: bool) -> None:
    problems = judge_card(with_(H100, **changes), CardXids())
    assert [problem.code for problem in problems] == codes
    assert any(problem.blocks for problem in problems) is blocks
    assert all(problem.hint for problem in problems)


def test_accepted_memory_errors_are_no_problem_until_there_are_more() -> None:
    card = with_(H100, ecc_uncorrected=2, compute_capability="7.0")
    assert judge_card(card, CardXids(), acknowledged_ecc=2) == []
    assert judge_card(with_(card, ecc_uncorrected=3), CardXids(), acknowledged_ecc=2)[0].blocks


def placed(*cards: Card, memory: Memory | None = None, owners: dict[int, str] | None = None) -> list[Card]:
    return place_cards(cards, memory=memory, owners=owners or {}, users={}, stale_after_s=30.0)


UNIFIED = with_(H100, unified=True, memory_total_mib=None, memory_used_mib=None, memory_free_mib=None)
PARENT = with_(H100, mig=True)
INSTANCE = Card(uuid="MIG-1", name="i", parent="GPU-1", mig=True, memory_free_mib=10, memory_total_mib=20, age_s=1.0)


@pytest.mark.parametrize(
    ("card", "memory", "placeable", "available_mib", "codes"),
    [
        (H100, None, True, 400, []),
        (with_(H100, problems=[STUCK]), None, True, 400, ["nvidia_smi_stuck"]),
        (with_(H100, problems=[MISMATCH]), None, False, None, ["nvidia_library_mismatch"]),
        (with_(H100, age_s=31.0), None, False, None, ["card_data_stale"]),
        (with_(H100, memory_free_mib=None), None, False, None, ["memory_unknown"]),
        (UNIFIED, Memory(total_mib=100, available_mib=70), True, 70, []),
        (UNIFIED, Memory(total_mib=100), False, None, ["memory_unknown"]),
        (UNIFIED, None, False, None, ["memory_unknown"]),
        (PARENT, None, False, None, ["mig_empty"]),
        (with_(H100, uuid="", problems=[]), None, False, None, []),
        (with_(INSTANCE, uuid=""), None, False, None, ["mig_uuid_unknown"]),
    ],
)
def test_whether_and_with_how_much_a_card_is_placed_on(
    card: Card, memory: Memory | None, placeable: bool, available_mib: int | None, codes: list[str]
) -> None:
    (seen,) = placed(card, memory=memory)
    assert (seen.placeable, seen.available_mib, [p.code for p in seen.problems]) == (placeable, available_mib, codes)


def test_a_divided_card_is_placed_on_through_its_instances_and_is_no_problem_itself() -> None:
    parent, instance = placed(PARENT, INSTANCE)
    assert (parent.placeable, parent.problems) == (False, [])
    assert (instance.placeable, instance.available_mib) == (True, 10)
    broken, out = placed(with_(PARENT, problems=[LOST]), INSTANCE)
    assert not broken.placeable and not out.placeable and [p.code for p in out.problems] == ["nvidia_card_lost"]


@pytest.mark.parametrize(
    ("sizes", "owned", "foreign_mib"),
    [([], set(), 0), ([10, 20], set(), 30), ([10, 20], {1}, 20), ([10, None], set(), None), ([None, 5], {1}, 5)],
)
def test_others_memory(sizes: list[int | None], owned: set[int], foreign_mib: int | None) -> None:
    processes = [CardProcess(pid=pid, name="x", memory_mib=size) for pid, size in enumerate(sizes, 1)]
    (seen,) = placed(with_(H100, processes=processes), owners=dict.fromkeys(owned, "qwen"))
    assert seen.foreign_mib == foreign_mib
    assert [bool(process.runtime) for process in seen.processes] == [process.pid in owned for process in processes]


def inventory_of(machine: str, now_s: float = 100.0) -> Inventory:
    return add_report(Inventory(details=details_of(machine)), report_of(machine), now_s)


def state_of(inventory: Inventory, now_s: float = 101.0) -> HardwareState:
    return build_state(inventory, Rules(), now_s, "")


def outline(state: HardwareState) -> list[tuple[str, bool, list[str]]]:
    return [(card.pci, card.placeable, [problem.code for problem in card.problems]) for card in state.cards]


def test_every_value_has_its_age_and_a_failure_only_makes_it_older() -> None:
    inventory = add_failure(inventory_of("rtx4090"), STUCK, "")
    assert [card.age_s for card in state_of(inventory, 110.0).cards] == [10.0]
    assert outline(state_of(inventory, 110.0)) == [("0000:01:00.0", True, [])]
    assert outline(state_of(inventory, 140.0)) == [("0000:01:00.0", False, ["card_data_stale"])]
    assert [problem.code for problem in state_of(inventory).problems] == ["nvidia_smi_stuck"]
    source = next(source for source in state_of(inventory, 110.0).sources if source.name == "nvidia-smi")
    assert (source.age_s, source.error) == (10.0, STUCK)


def test_a_driver_that_serves_nobody_takes_all_out_and_a_lost_card_only_itself() -> None:
    both = inventory_of("v100x2")
    mismatch = outline(state_of(add_failure(both, MISMATCH, "")))
    assert all(not placeable and "nvidia_library_mismatch" in codes for _, placeable, codes in mismatch)
    lost = outline(state_of(add_failure(both, LOST, "00000000:1C:00.0")))
    assert [(pci, placeable) for pci, placeable, _ in lost] == [("0000:1a:00.0", True), ("0000:1c:00.0", False)]
    assert "nvidia_card_lost" in lost[1][2] and lost[0][2] == ["nvlink_errors"]


def test_a_whole_report_ends_a_failure_and_a_partial_one_does_not() -> None:
    failed = add_failure(inventory_of("v100x2"), LOST, "0000:1C:00.0")
    partial = report_of("v100x2")
    partial = replace(partial, cards=partial.cards[:1])
    still = state_of(add_report(failed, partial, 105.0, partial=True), 106.0)
    assert [problem.code for problem in still.problems] == ["nvidia_card_lost"]
    assert [card.age_s for card in still.cards] == [1.0, 6.0]
    assert state_of(add_report(failed, report_of("v100x2"), 105.0)).problems == []


@pytest.mark.parametrize("problem", [NO_DEVICES, Problem(code="nvidia_smi_missing", message="m")])
def test_a_machine_that_never_had_a_card_misses_none(problem: Problem) -> None:
    assert state_of(add_failure(Inventory(), problem, "")).problems == []


def test_cards_that_are_gone_are_told_and_leave_the_list() -> None:
    state = state_of(add_failure(inventory_of("v100x2"), NO_DEVICES, ""))
    assert state.cards == []
    assert [problem.code for problem in state.problems] == ["nvidia_no_devices", "card_gone", "card_gone"]
    one = replace(report_of("v100x2"), cards=report_of("v100x2").cards[:1])
    left = state_of(add_report(inventory_of("v100x2"), one, 105.0))
    assert [problem.code for problem in left.problems] == ["card_gone"]
    assert state_of(add_report(add_report(inventory_of("v100x2"), one, 1.0), report_of("v100x2"), 2.0)).problems == []


def device(driver: str) -> PciDevice:
    return PciDevice(
        address="0000:65:00.0", vendor_id="10de", device_id="2335", pci_class="0302", model="H200", driver=driver
    )


@pytest.mark.parametrize(
    ("driver", "failure", "code"),
    [
        ("", None, "card_without_driver"), ("nouveau", None, "card_without_driver"),
        ("vfio-pci", None, "card_given_away"),
        ("nvidia", None, "card_not_listed"), ("nvidia", MISMATCH, "nvidia_library_mismatch"),
        ("vfio-pci", MISMATCH, "card_given_away"),
        ("", Problem(code="nvidia_smi_missing", message="m", hint="install it"), "nvidia_smi_missing"),
    ],
)  # fmt: skip
def test_a_card_that_the_driver_does_not_know_is_there_and_out(driver: str, failure: Problem | None, code: str) -> None:
    inventory = replace(inventory_of("rtx4090"), devices=Reading((device(driver),), 100.0))
    if failure is not None:
        inventory = add_failure(inventory, failure, "")
    card = state_of(inventory).cards[-1]
    assert (card.uuid, card.name, card.pci, card.placeable) == ("", "H200", "0000:65:00.0", False)
    assert [problem.code for problem in card.problems] == [code] and card.problems[0].hint


def test_network_controllers_and_other_vendors_are_no_cards() -> None:
    others = (
        PciDevice(address="a", vendor_id="10de", device_id="1", pci_class="0200"),
        PciDevice(address="b", vendor_id="1002", device_id="1", pci_class="0300"),
    )
    inventory = Inventory(devices=Reading(others, 100.0))
    assert not inventory.has_nvidia() and state_of(inventory).cards == []


def test_messages_belong_to_the_card_at_their_address() -> None:
    xids = {"0000:1a:00.0": CardXids().add(XidEvent("0000:1a:00.0", 79, "", 5.0))}
    first, second = state_of(replace(inventory_of("v100x2"), xids=xids)).cards
    assert [entry.xid for entry in first.xids] == [79] and second.xids == []


def test_an_unreadable_kernel_log_matters_only_where_there_are_cards() -> None:
    error = {"kernel-log": Problem(code="kernel_log_unreadable", message="m", hint="h")}
    assert state_of(Inventory(errors=error)).problems == []
    assert [p.code for p in state_of(replace(inventory_of("gb10"), errors=error)).problems] == ["kernel_log_unreadable"]


def test_where_the_module_cannot_be_asked_the_report_names_the_driver() -> None:
    told = state_of(inventory_of("v100x2")).driver
    assert told is not None and (told.version, told.flavour, told.cuda_version) == ("580.173.02", "", "13.0")
    module = replace(inventory_of("v100x2"), driver=Reading(Driver(version="580.1", flavour="open"), 1.0))
    asked = state_of(module).driver
    assert asked is not None and (asked.version, asked.flavour, asked.cuda_version) == ("580.1", "open", "13.0")
    assert state_of(Inventory()).driver is None
