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
from gateway.ejection import COOLDOWN_S, STREAK, Standing
from gateway.ending import Endings, RequestRecord
from gateway.key_limits import KeyLimiter
from gateway.loads import Loads
from gateway.relay import MAX_ATTEMPTS, Dispatcher, InferencePlan, explain_failure
from gateway.request_log import RequestLog
from gateway.router import Order, Why
from gateway.slots import Slots
from gateway.snapshot import SnapshotFile
from gateway.state import RouteState
from gateway.tracing.tracing import Tracing
from gateway.turns import STANDARD
from gateway.usage.account import Accountant
from tests.unit.gateway.hand_clock import HandClock
from tests.unit.gateway.tables import model, table, target


class Bench:
    """A plan over so many targets, and its counters."""

    def __init__(self, count: int = 2, adapters: tuple[str, ...] = ()) -> None:
        self.clock = HandClock()
        self.loads = Loads(self.clock, seat := open_seat({}))
        log = get_logger("test")
        self.state = RouteState(
            DaemonClient(Path("/nonexistent")), SnapshotFile(Path("/nonexistent")), UpstreamPool(), self.loads, log
        )
        names = (*adapters, *[""] * count)
        self.candidates = tuple(
            target(f"t{number}", adapter=names[number], adapter_loaded=True) for number in range(count)
        )
        self.publish(*self.candidates)
        self.record = RequestRecord("id", "/v1/x", 0.0, served="m")
        endings = Endings(RequestLog(log))
        limiter, tracing = KeyLimiter(seat, self.clock), Tracing(self.state, log, lambda fate, count: None)
        dispatcher = Dispatcher(self.state, self.loads, endings, Accountant(), limiter, tracing)
        routes = self.state.routes
        assert routes is not None and self.slots("t0").try_take(STANDARD)
        self.dispatcher, self.upstreams = dispatcher, routes.upstreams
        self.plan = self.make_plan()

    def make_plan(self, why: Why = Why.LOAD) -> InferencePlan:
        """One request; it has a slot of the first target."""
        order = Order(self.candidates, len(self.candidates), why)
        return InferencePlan(
            self.dispatcher, self.upstreams, order, self.record, STANDARD, any(one.adapter for one in self.candidates)
        )

    def publish(self, *targets: RouteTarget) -> None:
        self.state.apply(table(model("m", *targets)))

    def slots(self, id_: str) -> Slots:
        assert self.state.routes is not None
        return self.state.routes.upstreams[id_].load.slots

    @property
    def stays(self) -> dict[str, int]:
        """Uses of the adapter, by target."""
        found = {each.id: self.upstreams[each.id].load.adapters for each in self.candidates}
        return {id_: adapters["x"].in_use for id_, adapters in found.items() if "x" in adapters}

    @property
    def in_flight(self) -> dict[str, int]:
        """Slots taken, by target."""
        return {id_: used for id_, used in self.loads.in_use(self.candidates).items() if used}

    @property
    def standings(self) -> dict[str, Standing]:
        return dict(self.loads.standings(self.candidates))

    def fail(self, ended: Ended, times: int = 1) -> None:
        """So many requests to the first target end like this."""
        for _ in range(times):
            assert self.slots("t0").try_take(STANDARD)
            plan = self.make_plan()
            attempt = Attempt(named(plan.next_target(None)), ended)
            plan.next_target(attempt)
            plan.attempt_ended(attempt)
            plan.ended(outcome(Ended.NO_TARGET))

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
    assert count_asked(bench, Ended.SERVER_ERROR) == MAX_ATTEMPTS


def test_targets_that_cannot_be_connected_to_do_not_count_as_asked() -> None:
    bench = Bench(20)
    assert count_asked(bench, Ended.CONNECT_FAILED) == 20


def count_asked(bench: Bench, ended: Ended) -> int:
    """Targets that the request goes to when it always ends like this."""
    asked, failed = 0, None
    while (found := bench.plan.next_target(failed)) is not None:
        failed = Attempt(found, ended)
        bench.plan.attempt_ended(failed)
        asked += 1
    return asked


@pytest.mark.parametrize(
    ("ended", "times", "standing"),
    [
        (Ended.CONNECT_FAILED, 1, Standing.OUT),
        (Ended.CLOSED_EARLY, 1, Standing.OUT),
        (Ended.MALFORMED, 1, Standing.OUT),
        (Ended.FIRST_BYTE_TIMEOUT, 1, Standing.OUT),
        (Ended.SERVER_ERROR, STREAK - 1, None),
        (Ended.SERVER_ERROR, STREAK, Standing.OUT),
        (Ended.UNAUTHORIZED, STREAK, Standing.OUT),
        (Ended.UPSTREAM_BROKEN, STREAK, Standing.OUT),
        (Ended.BETWEEN_BYTES_TIMEOUT, STREAK, Standing.OUT),
        (Ended.BUSY, 1, Standing.RESTING),
        (Ended.COMPLETE, STREAK, None),
        (Ended.CLIENT_GONE, STREAK, None),
    ],
)
def test_only_failures_of_the_target_are_held_against_it(ended: Ended, times: int, standing: Standing | None) -> None:
    bench = Bench(2)
    bench.fail(ended, times)
    assert bench.standings.get("t0") is standing
    assert "t1" not in bench.standings


def test_an_answer_between_two_errors_ends_a_streak() -> None:
    bench = Bench(2)
    bench.fail(Ended.SERVER_ERROR, STREAK - 1)
    bench.plan.attempt_ended(Attempt(named(bench.plan.next_target(None)), Ended.COMPLETE, 200))
    bench.fail(Ended.SERVER_ERROR, STREAK - 1)
    assert bench.standings == {}


def test_an_error_that_is_passed_on_ends_no_streak() -> None:
    bench = Bench(2)
    bench.fail(Ended.SERVER_ERROR, STREAK - 1)
    bench.plan.attempt_ended(Attempt(named(bench.plan.next_target(None)), Ended.COMPLETE, 500))
    bench.fail(Ended.SERVER_ERROR)
    assert bench.standings == {"t0": Standing.OUT}


def test_a_target_that_says_how_long_it_is_full_rests_so_long() -> None:
    bench = Bench(2)
    bench.plan.next_target(Attempt(named(bench.plan.next_target(None)), Ended.BUSY, 429, retry_after_s=7.0))
    bench.clock.now_s += 6.9
    assert bench.standings == {"t0": Standing.RESTING}
    bench.clock.now_s += 0.2
    assert bench.standings == {}


class Head:
    """A relay that has passed on a head (`core.http.plan.Progress`)."""

    size_bytes = 0
    is_held_back = False

    def __init__(self, status: int) -> None:
        self.status = status


def begin_probe(bench: Bench) -> tuple[InferencePlan, Target]:
    """The request that finds out whether the first target is back."""
    bench.fail(Ended.CONNECT_FAILED)
    bench.clock.now_s += COOLDOWN_S
    assert bench.standings == {"t0": Standing.RETURNING}
    assert bench.slots("t0").try_take(STANDARD) and bench.upstreams["t0"].load.health.try_probe()
    plan = bench.make_plan(Why.PROBE)
    return plan, named(plan.next_target(None))


def test_the_head_of_a_probes_answer_lets_all_others_in() -> None:
    bench = Bench(2)
    plan, at = begin_probe(bench)
    assert bench.standings == {"t0": Standing.OUT}
    plan.begun(Head(200))
    plan.response_headers(at)
    assert bench.standings == {}


@pytest.mark.parametrize("ended", [Ended.CONNECT_FAILED, Ended.SERVER_ERROR, Ended.FIRST_BYTE_TIMEOUT])
def test_a_probe_that_fails_doubles_the_cool_down(ended: Ended) -> None:
    bench = Bench(2)
    plan, at = begin_probe(bench)
    plan.next_target(Attempt(at, ended))
    bench.clock.now_s += COOLDOWN_S * 1.9
    assert bench.standings == {"t0": Standing.OUT}
    bench.clock.now_s += COOLDOWN_S * 0.2
    assert bench.standings == {"t0": Standing.RETURNING}


async def test_a_probe_whose_client_leaves_is_followed_by_another() -> None:
    bench = Bench(2)
    plan, at = begin_probe(bench)
    plan.attempt_ended(Attempt(at, Ended.CLIENT_GONE))
    plan.ended(outcome(Ended.CLIENT_GONE, at))
    assert bench.standings == {"t0": Standing.RETURNING}


def test_a_probe_that_was_never_begun_is_followed_by_another() -> None:
    bench = Bench(2)
    bench.fail(Ended.CONNECT_FAILED)
    bench.clock.now_s += COOLDOWN_S
    assert bench.slots("t0").try_take(STANDARD) and bench.upstreams["t0"].load.health.try_probe()
    bench.make_plan(Why.PROBE).close()
    assert bench.standings == {"t0": Standing.RETURNING}


def test_an_answer_that_was_asked_for_before_the_failure_ends_no_cool_down() -> None:
    bench = Bench(2)
    at = named(bench.plan.next_target(None))
    bench.fail(Ended.CONNECT_FAILED)
    bench.plan.attempt_ended(Attempt(at, Ended.COMPLETE, 200))
    assert bench.standings == {"t0": Standing.OUT}


def test_a_target_that_the_daemon_calls_ready_again_is_asked_at_once() -> None:
    bench = Bench(2)
    bench.fail(Ended.CONNECT_FAILED)
    bench.publish(msgspec.structs.replace(bench.candidates[0], ready=False), bench.candidates[1])
    assert bench.standings == {"t0": Standing.OUT}
    bench.publish(*bench.candidates)
    assert bench.standings == {}


def test_an_adapter_stays_for_a_request_from_its_slot_to_its_end() -> None:
    bench = Bench(1, adapters=("x",))
    assert bench.stays == {"t0": 1}
    at = named(bench.plan.next_target(None))
    assert bench.stays == {"t0": 1}
    bench.plan.attempt_ended(Attempt(at, Ended.COMPLETE, 200))
    assert bench.stays == {"t0": 0}


def test_a_retry_asks_no_target_that_has_not_loaded_the_adapter() -> None:
    bench = Bench(3, adapters=("x", "x", "x"))
    one, two, three = bench.candidates
    bench.publish(one, msgspec.structs.replace(two, adapter_loaded=False), three)
    failed = Attempt(named(bench.plan.next_target(None)), Ended.CONNECT_FAILED)
    assert named(bench.plan.next_target(failed)).name == "t2"
    assert bench.stays == {"t0": 1, "t2": 1}


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(st.sampled_from([each for each in Ended if each is not Ended.NO_TARGET]), min_size=1, max_size=6),
    leaves_early=st.booleans(),
)
def test_whatever_happens_no_count_stays_behind(steps: list[Ended], leaves_early: bool) -> None:
    async def go() -> None:
        bench = Bench(4, adapters=("x", "", "x"))
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
        assert not any(bench.stays.values())

    asyncio.run(go())


@pytest.mark.parametrize("ended", list(Ended))
def test_every_ending_has_an_answer_that_names_the_model_and_no_host(ended: Ended) -> None:
    error = explain_failure(outcome(ended), "m")
    assert error.http_status in (502, 504) or (ended is Ended.BUSY and error.http_status == 503)
    assert (error.model, "127.0.0.1" in error.message) == ("m", False)
