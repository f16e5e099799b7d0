"""What nvidia-smi prints on recorded machines, and what it says when it fails."""

import contextlib
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.hardware import HardwareState
from daemon.hardware.gpu_class import card_class, has_unified_memory, instance_class
from daemon.hardware.inventory import Inventory, Rules, add_report, build_state
from daemon.hardware.nvidia import (
    OutputUnreadable,
    number,
    parse_list,
    parse_nvlinks,
    parse_query,
    pci_address,
    whole,
    word,
)
from daemon.hardware.nvidia_failure import judge_failure, lost_card
from daemon.hardware.nvidia_report import parse_report
from tests.unit.hardware.machines import MACHINES, SAMPLES, cards_of, failures, report_of, sample


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (
            "h100-mig",
            [
                ("h100-80g", "0000:19:00.0", 81559, 59095, "9.0", None, True),
                ("h100-80g-mig-3g.40gb", "0000:19:00.0", 40448, 18604, "9.0", None, True),
                ("h100-80g-mig-2g.20gb", "0000:19:00.0", 20096, 20052, "9.0", None, True),
                ("h100-80g-mig-1g.10gb", "0000:19:00.0", 9984, 9959, "9.0", None, True),
                ("h100-80g", "0000:3b:00.0", 81559, 6905, "9.0", 97, False),
            ],
        ),
        (
            "v100x2",
            [
                ("v100-32g", "0000:1a:00.0", 32768, 2251, "7.0", 88, None),
                ("v100-32g", "0000:1c:00.0", 32768, 32764, "7.0", 0, None),
            ],
        ),
        ("gb10", [("gb10", "000f:01:00.0", None, None, "12.1", 3, None)]),
        ("rtx4090", [("rtx-4090", "0000:01:00.0", 24564, 5865, "8.9", 71, None)]),
    ],
)
def test_a_recorded_machine_is_read_as_its_cards_and_instances(
    machine: str, expected: list[tuple[object, ...]]
) -> None:
    seen = [
        (c.card_class, c.pci, c.memory_total_mib, c.memory_free_mib, c.compute_capability, c.utilization, c.mig)
        for c in cards_of(machine)
    ]
    assert seen == expected


def test_instances_have_their_uuid_from_the_list_and_their_processes_from_the_report() -> None:
    whole_card, first, second, third, other = cards_of("h100-mig")
    assert [c.uuid[:12] for c in (first, second, third)] == ["MIG-8a219e3e", "MIG-78a9bacb", "MIG-5cf4d1b4"]
    assert {c.parent for c in (first, second, third)} == {whole_card.uuid}
    assert [p.pid for p in first.processes] == [41234]
    assert second.processes == third.processes == []
    assert [p.pid for p in other.processes] == [51234]


def test_counters_of_an_older_card_are_read_from_its_own_layout() -> None:
    first, second = cards_of("v100x2")
    assert (first.ecc_uncorrected, second.ecc_uncorrected) == (0, 2)
    assert [link.replay_errors for link in first.nvlinks] == [0, 0, 0, 2353, 0, 0]
    assert second.nvlinks[0].crc_errors == 65535
    assert (first.power_w, first.power_limit_w, first.performance_state) == (246.13, 300.0, "P0")
    assert first.remap_pending is None


def test_what_a_card_does_not_tell_is_none_and_never_zero() -> None:
    (card,) = cards_of("gb10")
    told_nothing = (card.memory_total_mib, card.memory_used_mib, card.memory_free_mib, card.ecc_uncorrected)
    assert told_nothing == (None, None, None, None)
    assert (card.memory_clock_mhz, card.power_limit_w, card.mig, card.remap_failed) == (None, None, None, None)
    assert card.unified and card.power_w == 11.17
    assert [(p.pid, p.kind, p.memory_mib) for p in card.processes] == [(2553, "G", 18), (415592, "C", 69564)]


def test_a_reports_head_names_driver_and_cuda() -> None:
    heads = {m: (report_of(m).driver_version, report_of(m).cuda_version) for m in MACHINES}
    assert heads["v100x2"] == ("580.173.02", "13.0") and heads["h100-mig"] == ("590.48.01", "13.1")


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("97 %", 97), ("311.42 W", 311.42), ("81559 MiB", 81559), ("0", 0), ("-5", -5),
        ("[N/A]", None), ("N/A", None), ("[Not Supported]", None), ("[Unknown Error]", None),
        ("[GPU requires reset]", None), ("[Insufficient Permissions]", None), ("ERR!", None), ("", None),
        (None, None), ("12abc", None), ("0x10", None), ("9" * 400, None), ("1e309", None),
    ],
)  # fmt: skip
def test_a_cell_is_a_number_or_none(cell: str | None, expected: float | None) -> None:
    assert number(cell) == expected
    assert whole(cell) == (None if expected is None else int(expected))


def test_marks_of_a_missing_value_are_no_words() -> None:
    assert [word(cell) for cell in ("N/A", "[N/A]", "None", " Reset ", "")] == ["", "", "", "Reset", ""]


def test_a_card_that_waits_for_a_reset_is_seen_in_the_query() -> None:
    rows = parse_query(sample("failures", "markers.noheader.nounits.csv"))
    assert [(row.name, row.needs_reset, row.compute_capability) for row in rows] == [
        ("NVIDIA H100 80GB HBM3", True, "9.0"),
        ("Tesla K80", False, "3.7"),
    ]


@pytest.mark.parametrize(
    ("bus_id", "address"),
    [
        ("00000000:19:00.0", "0000:19:00.0"), ("0000000F:01:00.0", "000f:01:00.0"), ("0000:3B:00", "0000:3b:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"), ("N/A", ""), ("", ""), ("19:00.0", ""),
    ],
)  # fmt: skip
def test_a_bus_id_becomes_the_kernels_address(bus_id: str, address: str) -> None:
    assert pci_address(bus_id) == address


FAILURES = {
    "bad-field": "nvidia_smi_too_old",
    "driver-mismatch": "nvidia_library_mismatch",
    "fallen-off-bus": "nvidia_card_lost",
    "insufficient-permissions": "nvidia_no_permission",
    "no-devices": "nvidia_no_devices",
    "no-driver": "nvidia_driver_not_loaded",
}


@pytest.mark.parametrize(("name", "status", "output"), list(failures()), ids=lambda value: str(value)[:20])
def test_every_recorded_failure_is_a_state_with_a_remedy(name: str, status: int, output: bytes) -> None:
    by_words, by_number = judge_failure(1, output), judge_failure(status, b"")
    assert by_words.code == by_number.code == FAILURES[name]
    assert by_words.hint and by_words.blocks
    assert output.split(b"\n")[0].decode()[:20] in by_words.message


@pytest.mark.parametrize(
    ("status", "output", "in_message"),
    [
        (-11, b"", "signal 11"),
        (77, b"", "status 77"),
        (255, b"\x1b[31mboom\x00\n", "boom"),
        (1, b"\xff\xfe", "status 1"),
    ],
)
def test_an_unknown_failure_is_told_as_it_is_without_control_characters(
    status: int, output: bytes, in_message: str
) -> None:
    problem = judge_failure(status, output)
    assert problem.code == "nvidia_smi_failed" and in_message in problem.message
    assert problem.message.isprintable()


def test_a_lost_card_is_named() -> None:
    assert lost_card((SAMPLES / "failures/fallen-off-bus.txt").read_bytes()) == "0000:3B:00.0"
    assert lost_card((SAMPLES / "failures/no-driver.txt").read_bytes()) == ""


@pytest.mark.parametrize(
    "garbage",
    [
        "", "Segmentation fault", "<html></html>", "<nvidia_smi_log>", "\x00\x01\x02",
        '<!DOCTYPE x [<!ENTITY a "aaaa">]><nvidia_smi_log>&a;</nvidia_smi_log>',
        "<nvidia_smi_log><gpu id='0'><product_name>X</product_name></gpu></nvidia_smi_log>",
    ],
)  # fmt: skip
def test_a_report_that_is_none_is_refused(garbage: str) -> None:
    with pytest.raises(OutputUnreadable):
        parse_report(garbage)


def test_a_report_that_was_cut_off_anywhere_is_refused_or_whole() -> None:
    text = sample("rtx4090", "q-x.xml")
    for cut in range(0, len(text.rstrip()) - 1, 97):
        with pytest.raises(OutputUnreadable):
            parse_report(text[:cut])


@pytest.mark.parametrize("text", ["a, b\n", "0, X, GPU-1\n", ", ".join("x" * 15) + "\n"])
def test_a_query_with_other_columns_is_refused(text: str) -> None:
    with pytest.raises(OutputUnreadable):
        parse_query(text)


def test_a_list_with_an_unknown_line_is_refused() -> None:
    with pytest.raises(OutputUnreadable):
        parse_list("GPU 0: X (UUID: GPU-1)\nUnable to determine the device handle\n")
    assert parse_list("") == {}


@given(st.text(max_size=400))
def test_no_text_breaks_a_parser(text: str) -> None:
    for parse in (parse_query, parse_list, parse_nvlinks, parse_report):
        with contextlib.suppress(OutputUnreadable):
            parse(text)
    assert judge_failure(1, text.encode("utf-8", "surrogatepass")).message.isprintable()


@pytest.mark.parametrize(
    ("name", "memory_mib", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", 81920, "a100-80g"), ("NVIDIA A100-PCIE-40GB", 40960, "a100-40g"),
        ("A100", 40536, "a100-40g"), ("NVIDIA H100 PCIe", 81559, "h100-80g"),
        ("NVIDIA H100 NVL", 95830, "h100-nvl-94g"),
        ("Tesla V100-SXM2-16GB", 16384, "v100-16g"), ("NVIDIA L40S", 46068, "l40s"), ("NVIDIA H200", 143771, "h200"),
        ("Tesla T4", 15360, "t4"), ("NVIDIA RTX A6000", 49140, "rtx-a6000"), ("NVIDIA GB10", None, "gb10"),
        ("NVIDIA RTX 6000 Ada Generation", 49140, "rtx-6000-ada"), ("NVIDIA GeForce GTX 1080 Ti", 11264, "gtx-1080-ti"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, "rtx-pro-6000-blackwell"),
        ("NVIDIA GeForce RTX 4090 \x1b[0m$(x)", 24564, "rtx-4090-0mx"), ("", None, ""),
    ],
)  # fmt: skip
def test_a_cards_class(name: str, memory_mib: int | None, expected: str) -> None:
    assert card_class(name, memory_mib) == expected


def test_an_instances_class_and_unified_memory() -> None:
    assert instance_class("a100-80g", "3g.40gb") == "a100-80g-mig-3g.40gb"
    assert instance_class("h100-80g", "1g.10gb+me") == "h100-80g-mig-1g.10gb+me"
    parts = ("NVIDIA GB10", "NVIDIA N1X", "NVIDIA Jetson AGX Orin", "NVIDIA GB200", "NVIDIA GH200 480GB", "Tesla T4")
    assert [has_unified_memory(part) for part in parts] == [True, True, True, False, False, False]


CELLS = st.sampled_from(
    [
        "N/A",
        "[N/A]",
        "-1",
        "1e309",
        "9" * 400,
        "",
        "Enabled",
        "None",
        "\u2028",
        "&lt;",
        "<a/>",
        "Yes",
        "Active",
        "GPU-x",
    ]
)


@given(st.sampled_from(MACHINES), st.lists(st.tuples(st.integers(0, 200), CELLS), max_size=8))
def test_no_value_in_a_report_breaks_what_is_made_of_it(machine: str, changes: list[tuple[int, str]]) -> None:
    parts = re.split(r"(?<=>)([^<\n]+)(?=</)", sample(machine, "q-x.xml"))
    for index, cell in changes:
        parts[(2 * index + 1) % (len(parts) - 1)] = cell
    with contextlib.suppress(OutputUnreadable):
        report = parse_report("".join(parts))
        state = build_state(add_report(Inventory(), report, 0.0), Rules(), 1.0, "")
        assert msgspec.json.decode(msgspec.json.encode(state), type=HardwareState) == state
