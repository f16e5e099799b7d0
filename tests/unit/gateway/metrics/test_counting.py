"""What is counted of a request at its end, and that no client can make a label."""

from collections.abc import Callable

import pytest

from gateway.board import Board, Seat
from gateway.ending import RequestRecord
from gateway.metrics.arena import gather
from gateway.metrics.counting import OTHER, UNKNOWN, Counting
from gateway.metrics.layout import Number
from gateway.metrics.numbers import Numbers, RequestNumbers, read_numbers

Check = Callable[[RequestNumbers], bool]


class Desk:
    """A worker that counts."""

    def __init__(self) -> None:
        self.board = Board.create()
        self.counting = Counting(Seat(self.board, 1))

    def numbers(self) -> Numbers:
        return read_numbers(gather(self.board))

    def count(self, **fields: object) -> RequestNumbers:
        """One request, and all that is known of its model at its target then."""
        record = make_record(**fields)
        self.counting.request_ended(record)
        wanted = (record.served or UNKNOWN, record.target)
        return next(each for each in self.numbers().requests if (each.model, each.target) == wanted)


def make_record(**fields: object) -> RequestRecord:
    """A request that was answered in 1.5 s by the target `n/t`."""
    usual: dict[str, object] = {
        "model": "m", "served": "m", "target": "n/t", "attempts": 1, "status": 200, "ended_s": 101.5, "why": "only",
    }  # fmt: skip
    return RequestRecord("id", "/v1/chat/completions", 100.0, **(usual | fields))  # type: ignore[arg-type]


ROWS: list[tuple[dict[str, object], Check]] = [
    ({}, lambda got: got.outcomes == {("2xx", "complete"): 1}),
    ({"status": 404}, lambda got: got.outcomes == {("4xx", "complete"): 1}),
    ({"status": 0, "ended": "client_gone"}, lambda got: got.outcomes == {("none", "client_gone"): 1}),
    ({"ended": "upstream_broken"}, lambda got: got.outcomes == {("2xx", "upstream_broken"): 1}),
    ({"status": 999}, lambda got: got.outcomes == {("5xx", "complete"): 1}),
    ({}, lambda got: (got.duration.count, got.duration.sum_s) == (1, 1.5)),
    ({}, lambda got: dict(got.duration.buckets)["2.5"] == 1 and dict(got.duration.buckets)["1.0"] == 0),
    ({"ended_s": 1e7}, lambda got: got.duration.buckets[-2][1] == 0 and got.duration.count == 1),
    ({"why": "affinity"}, lambda got: got.reasons == {"affinity": 1}),
    ({"queued_s": 0.25}, lambda got: (got.queue.count, got.queue.sum_s) == (1, 0.25)),
    ({}, lambda got: (got.queue.count, got.queue.sum_s, got.queue.buckets[0][1]) == (1, 0.0, 1)),
    ({"why": ""}, lambda got: got.queue.count == 0 and got.reasons == {}),
    ({"prompt_tokens": 7, "cached_tokens": 3}, lambda got: got.numbers[Number.PROMPT_TOKENS] == 7),
    ({"prompt_tokens": 7, "cached_tokens": 3}, lambda got: got.numbers[Number.CACHED_TOKENS] == 3),
    ({"completion_tokens": 9}, lambda got: got.numbers[Number.COMPLETION_TOKENS] == 9),
    ({"completion_tokens": 9}, lambda got: got.first_token.count == got.between_tokens.count == 0),
    ({"prompt_tokens": 7, "completion_tokens": 9, "is_estimated": True},
     lambda got: got.numbers[Number.ESTIMATED_TOKENS] == 16),
    ({"completion_tokens": 9, "ended": "client_gone"},
     lambda got: (got.numbers[Number.WASTED_TOKENS], got.numbers[Number.CANCELLED]) == (9, 1)),
    ({"completion_tokens": 9, "ended": "upstream_broken"},
     lambda got: (got.numbers[Number.WASTED_TOKENS], got.numbers[Number.CANCELLED]) == (9, 0)),
    ({"attempts": 3}, lambda got: got.numbers[Number.RETRIES] == 2),
    # A stream of eleven tokens: the first after 0.2 s, ten more in the second that followed.
    ({"stream": True, "completion_tokens": 11, "first_data_s": 0.2, "relay_s": 1.2},
     lambda got: (got.first_token.sum_s, got.between_tokens.sum_s) == (0.2, 0.1)),
    ({"stream": True, "completion_tokens": 1, "first_data_s": 0.2, "relay_s": 1.2},
     lambda got: (got.first_token.count, got.between_tokens.count) == (1, 0)),
    ({"stream": True, "completion_tokens": 5, "first_data_s": 0.0}, lambda got: got.first_token.count == 0),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "holds"), ROWS)
def test_a_request_is_counted(fields: dict[str, object], holds: Check) -> None:
    got = Desk().count(**fields)
    assert holds(got), got


def test_a_hundred_requests_are_a_hundred() -> None:
    desk = Desk()
    for _ in range(99):
        desk.count(prompt_tokens=2)
    got = desk.count(prompt_tokens=2)
    assert (got.requests, got.numbers[Number.PROMPT_TOKENS]) == (100, 200)


def test_names_that_clients_make_up_are_one_label() -> None:
    desk = Desk()
    for number in range(100):
        desk.count(model=f"made up {number}", served="", target="", status=404, code="model_not_found", ended="refused")
    numbers = desk.numbers()
    assert [(each.model, each.target, each.requests) for each in numbers.requests] == [(UNKNOWN, "", 100)]
    assert numbers.refusals == [(UNKNOWN, "model_not_found", 100)]


def test_what_has_no_room_is_counted_together() -> None:
    desk = Desk()
    for number in range(1500):
        desk.counting.request_ended(make_record(served=f"m{number}", code=f"c{number}"))
        desk.counting.ejected(f"t{number}", "connect_failed", 5.0, "")
    numbers = desk.numbers()
    assert sum(each.requests for each in numbers.requests) == 1500
    assert sum(count for _, _, count in numbers.refusals) == 1500
    assert sum(sum(each.ejections.values()) for each in numbers.targets) == 1500
    assert next(each for each in numbers.requests if each.model == OTHER).requests > 500
    assert len(numbers.requests) < 900


def test_what_happens_to_targets_is_counted_by_cause() -> None:
    desk = Desk()
    desk.counting.failed("n/t", "server_error")
    desk.counting.failed("n/t", "server_error")
    desk.counting.failed("n/t", "connect_failed")
    desk.counting.ejected("n/t", "connect_failed", 5.0, "")
    desk.counting.readmitted("n/t")
    (got,) = desk.numbers().targets
    assert got.failures == {"server_error": 2, "connect_failed": 1}
    assert (got.ejections, got.readmissions) == ({"connect_failed": 1}, 1)


@pytest.mark.parametrize(("share", "seconds"), [(0.5, 1.0), (0.25, 0.75), (1.0, 2.5)])
def test_a_quantile_is_read_between_two_bounds(share: float, seconds: float) -> None:
    desk = Desk()
    desk.count(ended_s=100.7)
    desk.count(ended_s=100.8)
    desk.count(ended_s=101.5)
    got = desk.count(ended_s=102.0)
    assert got.duration.quantile_s(share) == pytest.approx(seconds)


def test_no_observation_has_no_quantile() -> None:
    assert Desk().count(why="").queue.quantile_s(0.5) is None
