"""One day of the ledger: reports that come again, floods of names, and files that are none of ours."""

import pytest

from core.errors import UsageError
from core.usage import UsageReport, UsageRow
from daemon.usage.day import MOST_ROWS, OTHERS, Day, parse_day
from daemon.usage.ledger import check_report

DAY = "2026-01-31"


def report(sequence: int, *rows: UsageRow, source: str = "w") -> UsageReport:
    return UsageReport(source=source, sequence=sequence, rows=list(rows))


def row(key: str = "k", model: str = "m", **counts: int) -> UsageRow:
    return UsageRow(day=DAY, key=key, model=model, **({"requests": 1, "prompt_tokens": 10} | counts))


def add(day: Day, said: UsageReport) -> bool:
    return day.add(said, said.rows)


def test_a_report_that_comes_again_is_counted_once() -> None:
    day = Day(DAY)
    assert add(day, report(1, row()))
    assert not add(day, report(1, row()))
    assert add(day, report(2, row()))
    assert not add(day, report(1, row()))
    assert add(day, report(1, row(), source="other"))
    assert day.rows == [row(requests=3, prompt_tokens=30)]


def test_it_is_also_known_after_the_day_was_stored_and_read() -> None:
    day = Day(DAY)
    add(day, report(1, row(), row("", "n")))
    again = parse_day(DAY, day.render())
    assert not add(again, report(1, row()))
    assert again.rows == day.rows == [row(), row("", "n")]


def test_a_flood_of_names_is_summed_up_under_one() -> None:
    day = Day(DAY)
    add(day, report(1, *(row(f"k{number}") for number in range(MOST_ROWS + 5))))
    add(day, report(2, row("k0"), row("new")))
    assert len(day.rows) == MOST_ROWS + 1
    by_key = {one.key: one.requests for one in day.rows}
    assert (by_key[OTHERS], by_key["k0"]) == (6, 2)


def test_workers_that_are_long_gone_are_forgotten() -> None:
    day = Day(DAY)
    for number in range(1500):
        add(day, report(1, row(), source=f"w{number}"))
        add(day, report(number + 1, row(), source="alive"))
    assert not add(day, report(1500, source="alive"))
    assert len(day.render()) < 64_000


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"rows":1,"sources":{}}', b'{"rows":[]}', b"\xff", b"[" * 100_000]
)
def test_a_file_that_is_no_day_says_so(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_day(DAY, data)


@pytest.mark.parametrize(
    "wrong",
    [
        report(0, row()),
        report(-1, row()),
        report(1, row(), source=""),
        report(1, row(), source="w" * 1000),
        report(1, row("k" * 1000)),
        report(1, row(model="m" * 1000)),
        report(1, row(requests=-1)),
        report(1, row(prompt_tokens=1 << 60)),
        report(1, UsageRow(day="", requests=1)),
        report(1, UsageRow(day="2026-1-1", requests=1)),
        report(1, UsageRow(day="../../etc/passwd", requests=1)),
        report(1, UsageRow(day="2026-02-30", requests=1)),
    ],
)
def test_a_report_that_no_gateway_would_send_is_refused(wrong: UsageReport) -> None:
    with pytest.raises(UsageError):
        check_report(wrong)
