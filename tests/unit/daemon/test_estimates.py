"""What is remembered of a runtime's size, and what is made of it."""

from pathlib import Path

import pytest

from core.hardware import Card, CardProcess
from daemon.runtimes.estimates import Estimates, estimate_mib
from daemon.runtimes.gpu_memory import held_mib


@pytest.mark.parametrize(
    ("configured", "measured", "weights_gib", "overhead", "expected"),
    [
        (2.0, 9000, 1, 64, 2048),
        (None, 1000, 9, 64, 1050),
        (None, None, 1, 512, 1126 + 512),
        (None, None, 0, 64, 64),
        (None, None, 9, None, None),
    ],
)
def test_the_first_that_is_known_counts(
    configured: float | None, measured: int | None, weights_gib: int, overhead: int | None, expected: int | None
) -> None:
    got = estimate_mib(
        configured_gib=configured, measured_mib=measured, weights_bytes=weights_gib << 30, overhead_mib=overhead
    )
    assert got == expected


def test_the_largest_measure_of_a_spec_is_kept_over_restarts(tmp_path: Path) -> None:
    estimates = Estimates(tmp_path / "e.json")
    assert estimates.learn("r", "h", 100)
    assert not estimates.learn("r", "h", 90)
    assert estimates.learn("r", "h", 90, 2000)
    again = Estimates(tmp_path / "e.json")
    assert (again.measured_mib("r", "h"), again.measured_gpu_mib("r", "h")) == (100, 2100)


def test_another_spec_starts_over(tmp_path: Path) -> None:
    estimates = Estimates(tmp_path / "e.json")
    estimates.learn("r", "h", 100, 2000)
    assert (estimates.measured_mib("r", "other"), estimates.measured_gpu_mib("r", "other")) == (None, None)
    estimates.learn("r", "other", 50)
    assert (estimates.measured_mib("r", "other"), estimates.measured_gpu_mib("r", "other")) == (50, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"r": 3}',
        "\x00",
        '{"r": {"spec_hash": "h", "host_mib": -1}}',
        '{"r": {"spec_hash": "h", "host_mib": 999999999999}}',
        '{"r": {"spec_hash": "h", "host_mib": 5, "gpu_mib": -5}}',
    ],
)
def test_a_file_that_is_not_ours_is_no_memory(tmp_path: Path, text: str) -> None:
    (tmp_path / "e.json").write_text(text)
    assert Estimates(tmp_path / "e.json").measured_mib("r", "h") is None


def test_what_processes_hold_is_summed_over_cards() -> None:
    cards = [
        Card(uuid="a", name="x", processes=[CardProcess(pid=1, name="e", memory_mib=10), CardProcess(pid=9, name="z")]),
        Card(uuid="b", name="x", processes=[CardProcess(pid=2, name="e", memory_mib=5)]),
    ]
    assert held_mib(cards, {1, 2}) == 15
    assert held_mib(cards, {7}) == 0
