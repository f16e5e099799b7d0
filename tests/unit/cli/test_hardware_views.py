"""How recorded machines read in a terminal."""

import pytest

from cli.hardware_views import CARD_COLUMNS, PORT_COLUMNS, card_lines, card_row, machine_lines, port_rows, problem_lines
from core.hardware import (
    Adapter,
    Card,
    Cpu,
    Disk,
    Driver,
    HardwareState,
    InfinibandPort,
    Link,
    Memory,
    NumaNode,
    Problem,
)
from daemon.hardware.cards import Details
from daemon.hardware.inventory import Inventory, Rules, add_report, build_state
from tests.unit.hardware.machines import details_of, report_of


def cards_of(machine: str, details: Details | None = None) -> list[Card]:
    inventory = add_report(Inventory(details=details or details_of(machine)), report_of(machine), 100.0)
    return build_state(inventory, Rules(), 103.0, "").cards


def test_instances_stand_below_their_divided_card() -> None:
    rows = [card_row(card)[:6] for card in cards_of("h100-mig")]
    assert rows == [
        ("0", "h100-80g", "divided", "79.6 GiB", "-", "21.3 GiB"),
        ("  3g.40gb", "h100-80g-mig-3g.40gb", "yes", "39.5 GiB", "18.2 GiB", "21.3 GiB"),
        ("  2g.20gb", "h100-80g-mig-2g.20gb", "yes", "19.6 GiB", "19.6 GiB", "0 MiB"),
        ("  1g.10gb", "h100-80g-mig-1g.10gb", "yes", "9.8 GiB", "9.7 GiB", "0 MiB"),
        ("1", "h100-80g", "yes", "79.6 GiB", "6.7 GiB", "72.3 GiB"),
    ]


@pytest.mark.parametrize("machine", ["h100-mig", "v100x2", "gb10", "rtx4090"])
def test_every_row_fits_its_columns_and_what_is_unknown_is_a_dash(machine: str) -> None:
    for card in cards_of(machine):
        row = card_row(card)
        assert len(row) == len(CARD_COLUMNS)
        assert all(row) and "None" not in " ".join(row)
        assert row[CARD_COLUMNS.index("AGE")] == "3 s"


def test_a_card_that_is_out_says_why_and_how_it_comes_back() -> None:
    _, card = cards_of("v100x2")
    assert card_row(card)[2] == "OUT"
    lines = card_lines(card)
    assert lines[0] == "  card 1: 2 uncorrectable memory errors since the driver was loaded  [ecc_uncorrected]"
    assert "llmgw hardware clear 1" in lines[1]


def test_others_processes_are_shown_with_pid_and_user() -> None:
    (card,) = cards_of("rtx4090")
    assert "  card 0: 17.5 GiB are held by python (pid 9041, unknown user)" in card_lines(card)


def test_a_divided_card_leaves_its_processes_to_its_instances() -> None:
    parent, instance, *_ = cards_of("h100-mig")
    assert card_lines(parent) == []
    assert any("VLLM::EngineCore" in line for line in card_lines(instance))


def test_a_card_without_a_driver_is_named_by_its_address() -> None:
    card = Card(uuid="", name="H200", pci="0000:65:00.0", placeable=False, problems=[Problem(code="c", message="m")])
    assert card_row(card)[:3] == ("0000:65:00.0", "H200", "OUT")
    assert card_lines(card) == ["  card 0000:65:00.0: m  [c]"]


def test_the_machine_in_lines() -> None:
    state = HardwareState(
        cpu=Cpu(model="EPYC", logical_cpus=64, utilization=12.4, features=["avx", "avx2"]),
        memory=Memory(total_mib=2048, available_mib=None),
        numa=[NumaNode(number=0, cpus="0-31"), NumaNode(number=1, cpus="32-63", memory_free_mib=5)],
        driver=Driver(version="580.1", flavour="open", cuda_version="13.0"),
        disks=[Disk(path="/var", purpose="state", free_mib=5, total_mib=10)],
        links=[
            Link(name="lo", kind="loopback", up=True), Link(name="eth1", up=False),
            Link(name="eth0", kind="ethernet", up=True, carrier=True, speed_mbps=100000, addresses=["10.0.0.1/24"]),
        ],
    )  # fmt: skip
    lines = machine_lines(state)
    assert lines[0] == "processor  EPYC, 64 CPUs, 12 % busy"
    assert "memory     - available of 2.0 GiB" in lines
    assert "driver     NVIDIA 580.1, open, CUDA 13.0" in lines
    assert "disk       state: 5 MiB free of 10 MiB on - (-), /var" in lines
    assert "link       eth0: 10.0.0.1/24, 100000 Mb/s" in lines
    assert not any("eth1" in line or "lo:" in line for line in lines)
    assert machine_lines(HardwareState()) == []


def test_ports_and_problems() -> None:
    port = InfinibandPort(number=1, state="ACTIVE", link_layer="InfiniBand", rate_gbps=400.0, net_devices=["ib0"])
    (row, silent) = port_rows(
        [Adapter(name="mlx5_0", fabrics=["fast"], ports=[port]), Adapter(name="x", ports=[InfinibandPort(number=2)])]
    )
    assert row == ("mlx5_0/1", "active", "InfiniBand", "400 Gb/s", "fast", "ib0")
    assert silent == ("x/2", "-", "-", "-", "-", "-") and len(row) == len(PORT_COLUMNS)
    assert problem_lines([Problem(code="c", message="m", hint="h"), Problem(code="d", message="n")]) == [
        "  m  [c]", "      h", "  n  [d]",
    ]  # fmt: skip
