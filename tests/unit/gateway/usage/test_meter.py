"""What a worker counts between two reports, and how it numbers them."""

from core.usage import MOST_ROWS, UsageRow
from gateway.ending import RequestRecord
from gateway.usage.meter import Meter
from tests.unit.gateway.hand_clock import HandClock


def ended(**facts: object) -> RequestRecord:
    known: dict[str, object] = {"target": "t", "served": "m", "key": "k", "status": 200}
    known |= {"prompt_tokens": 10, "cached_tokens": 4, "completion_tokens": 5}
    return RequestRecord("id", "/v1/x", 1.0, **(known | facts))  # type: ignore[arg-type]


def test_requests_are_summed_up_by_day_key_and_model() -> None:
    clock = HandClock()
    meter = Meter("w", clock)
    meter.request_ended(ended())
    meter.request_ended(ended(is_estimated=True, ended="client_gone"))
    meter.request_ended(ended(key=""))
    clock.now_s += 86400
    meter.request_ended(ended(served="n", is_estimated=True))
    assert meter.changed.is_set()
    (report,) = meter.take()
    counts = {"prompt_tokens": 10, "cached_tokens": 4, "completion_tokens": 5}
    assert report.rows == [
        UsageRow(
            day="1970-01-01", key="k", model="m", requests=2, cut_short=1, estimated=1, prompt_tokens=20,
            cached_tokens=8, completion_tokens=10, estimated_tokens=15, wasted_tokens=15,
        ),
        UsageRow(day="1970-01-01", key="", model="m", requests=1, **counts),
        UsageRow(day="1970-01-02", key="k", model="n", requests=1, estimated=1, estimated_tokens=15, **counts),
    ]  # fmt: skip


def test_what_was_taken_is_gone_and_the_next_report_has_the_next_number() -> None:
    meter = Meter("w", HandClock())
    meter.request_ended(ended())
    assert [report.sequence for report in meter.take()] == [1]
    assert not meter.changed.is_set() and meter.take() == []
    meter.request_ended(ended())
    assert [(report.source, report.sequence) for report in meter.take()] == [("w", 2)]


def test_a_request_that_no_engine_got_is_not_counted() -> None:
    meter = Meter("w", HandClock())
    meter.request_ended(ended(target="", status=429, ended="refused"))
    meter.request_ended(ended(served="", status=404))
    assert meter.take() == []


def test_many_rows_are_several_reports() -> None:
    meter = Meter("w", HandClock())
    for number in range(MOST_ROWS + 1):
        meter.request_ended(ended(key=f"k{number}"))
    assert [(report.sequence, len(report.rows)) for report in meter.take()] == [(1, MOST_ROWS), (2, 1)]
