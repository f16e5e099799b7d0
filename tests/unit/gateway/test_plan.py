"""One request's way over its targets: what is counted, what is held against whom, and that nothing stays behind."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.api import RouteTarget
from core.client import DaemonClient
from core.http.plan import Attempt, RelayOutcome
from core.http.pool import Target, UpstreamPool
from core.http.verdict import Ended
from core.log import get_logger
from gateway.board import open_seat
from gateway.ending import Endings, RequestRecord
from gateway.key_limits import KeyLimiter
from gateway.loads import COOLDOWN_S, Loads
from gateway.relay import MAX_ATTEMPTS, Dispatcher, InferencePlan, explain_failure
from gateway.request_log import RequestLog
from gateway.slots import Slots
from gateway.snapshot import SnapshotFile
from gateway.state import RouteState
from gateway.turns import STANDARD
from gateway.usage.account import Accountant
from tests.unit.gateway.hand_clock import HandClock
from tests.unit.gateway.tables import model, table, target


class Bench:
    """A plan over so many targets, and its counters."""

    def __init__(self, count: int = 2) -> None:
        self.clock = HandClock()
        self.loads = Loads(self.clock, seat := open_seat({}))
        log = get_logger("test")
        self.state = RouteState(
            DaemonClient(Path("/nonexistent")), SnapshotFile(Path("/nonexistent")), UpstreamPool(), self.loads, log
        )
        self.candidates = tuple(target(f"t{number}") for number in range(count))
        self.publish(*self.candidates)
        self.record = RequestRecord("id", "/v1/x", 0.0)
        endings = Endings(RequestLog(log))
        dispatcher = Dispatcher(self.state, self.loads, endings, Accountant(), KeyLimiter(seat, self.clock))
        routes = self.state.routes
        assert routes is not None and self.slots("t0").try_take(STANDARD)
        self.plan = InferencePlan(dispatcher, routes.upstreams, self.candidates, self.record, STANDARD)

    def publish(self, *targets: RouteTarget) -> None:
        self.state.apply(table(model("m", *targets)))

    def slots(self, id_: str) -> Slots:
        assert self.state.routes is not None
        return self.state.routes.upstreams[id_].load.slots

    @property
    def in_flight(self) -> dict[str, int]:
        """Slots taken, by target."""
        return {id_: used for id_, used in self.loads.in_use(self.candidates).items() if used}

    @property
    def cooling(self) -> set[str]:
        return set(self.loads.cooling(self.candidates))

    def end(self, ended: Ended, at: Target | None, status: int | None = None) -> None:
        self.plan.ended(outcome(ended, at, status))


def outcome(ended: Ended, at: Target | None = None, status: int | None = None) -> RelayOutcome:
    return RelayOutcome(
        ended=ended, status=status, size_bytes=7, first_byte_s=None, total_s=1.0, tail=b"", target=at, attempts=()
    )


def named(found: Target | None) -> Target:
    assert found is not None
    return found


def test_a_request_counts_from_its_dispatch_until_its_connection_is_let_go() -> None:
    bench = Bench(1)
    first = named(bench.plan.next_target(None))
    assert bench.in_flight == {"t0": 1}
    bench.plan.attempt_ended(Attempt(first, Ended.COMPLETE, 200))
    assert bench.in_flight == {}


def test_a_retry_moves_the_count_and_ends_with_the_last_target() -> None:
    bench = Bench(2)
    failed = Attempt(named(bench.plan.next_target(None)), Ended.CONNECT_FAILED)
    bench.plan.attempt_ended(failed)
    assert named(bench.plan.next_target(failed)).name == "t1"
    assert bench.in_flight == {"t1": 1}
    assert bench.plan.next_target(failed) is None


def test_a_target_that_was_named_and_never_asked_is_given_back_at_the_end() -> None:
    bench = Bench(2)
    first = named(bench.plan.next_target(None))
    bench.plan.next_target(Attempt(first, Ended.BUSY, 503))
    assert bench.in_flight == {"t0": 1, "t1": 1}
    bench.plan.attempt_ended(Attempt(first, Ended.CLIENT_GONE))
    asyncio.run(end_in_loop(bench, Ended.CLIENT_GONE, first))
    assert bench.in_flight == {}


def test_a_plan_that_was_never_begun_gives_its_slot_back() -> None:
    bench = Bench(1)
    assert bench.in_flight == {"t0": 1}
    bench.plan.close()
    bench.plan.close()
    assert bench.in_flight == {}


def test_a_plan_that_was_begun_keeps_its_slot_when_it_is_closed() -> None:
    bench = Bench(1)
    bench.plan.next_target(None)
    bench.plan.close()
    assert bench.in_flight == {"t0": 1}


def test_a_retry_asks_nobody_without_a_free_slot_and_says_so() -> None:
    bench = Bench(3)
    bench.publish(*(msgspec.structs.replace(each, max_concurrency=1) for each in bench.candidates))
    assert bench.slots("t1").try_take(STANDARD)
    failed = Attempt(named(bench.plan.next_target(None)), Ended.CONNECT_FAILED)
    assert (named(bench.plan.next_target(failed)).name, bench.plan.is_short) == ("t2", True)


def test_a_retry_goes_by_the_routes_of_its_own_moment() -> None:
    bench = Bench(4)
    failed = Attempt(named(bench.plan.next_target(None)), Ended.CONNECT_FAILED)
    one, two, three, four = bench.candidates
    bench.publish(one, msgspec.structs.replace(two, ready=False), msgspec.structs.replace(four, port=99))
    found = named(bench.plan.next_target(failed))
    assert (found.name, found.port, bench.plan.is_short) == ("t3", 99, False)


async def end_in_loop(bench: Bench, ended: Ended, at: Target) -> None:
    bench.end(ended, at)


def test_a_request_is_sent_to_a_bounded_number_of_targets() -> None:
    bench = Bench(20)
    asked = 0
    failed = None
    while (found := bench.plan.next_target(failed)) is not None:
        failed = Attempt(found, Ended.CONNECT_FAILED)
        bench.plan.attempt_ended(failed)
        asked += 1
    assert asked == MAX_ATTEMPTS


@pytest.mark.parametrize(
    ("ended", "cools"),
    [
        (Ended.CONNECT_FAILED, True),
        (Ended.CLOSED_EARLY, True),
        (Ended.SERVER_ERROR, True),
        (Ended.MALFORMED, True),
        (Ended.FIRST_BYTE_TIMEOUT, True),
        (Ended.BUSY, False),
        (Ended.UNAUTHORIZED, False),
        (Ended.COMPLETE, False),
        (Ended.CLIENT_GONE, False),
    ],
)
def test_only_failures_of_the_target_are_held_against_it(ended: Ended, cools: bool) -> None:
    bench = Bench(2)
    bench.plan.next_target(Attempt(named(bench.plan.next_target(None)), ended))
    assert ("t0" in bench.cooling) is cools


def test_a_cool_down_ends_by_time_and_by_an_answer() -> None:
    bench = Bench(2)
    bench.loads.failed("t0")
    bench.loads.failed("t1")
    bench.loads.worked("t1")
    assert bench.cooling == {"t0"}
    bench.clock.now_s += COOLDOWN_S
    assert bench.cooling == set()


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(st.sampled_from([each for each in Ended if each is not Ended.NO_TARGET]), min_size=1, max_size=6),
    leaves_early=st.booleans(),
)
def test_whatever_happens_no_count_stays_behind(steps: list[Ended], leaves_early: bool) -> None:
    async def go() -> None:
        bench = Bench(4)
        found = bench.plan.next_target(None)
        for step in steps:
            if found is None:
                break
            attempt = Attempt(found, step)
            # The relay asks for the next target before it lets go of a rejected answer's connection.
            following = bench.plan.next_target(attempt)
            if leaves_early:
                break
            bench.plan.attempt_ended(attempt)
            found = following
        bench.end(steps[-1], found)
        assert bench.in_flight == {}

    asyncio.run(go())


@pytest.mark.parametrize("ended", list(Ended))
def test_every_ending_has_an_answer_that_names_the_model_and_no_host(ended: Ended) -> None:
    error = explain_failure(outcome(ended), "m")
    assert error.http_status in (502, 504)
    assert (error.model, "127.0.0.1" in error.message) == ("m", False)
