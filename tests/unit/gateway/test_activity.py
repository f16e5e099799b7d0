"""What a worker tells of its requests: counts by runtime, bytes, and which request stands still."""

from dataclasses import dataclass

from core.activity import AdapterActivity, RuntimeActivity
from core.http.plan import Progress
from gateway.activity import Observer
from gateway.board import open_seat
from gateway.loads import Loads
from gateway.turns import STANDARD
from tests.unit.gateway.hand_clock import HandClock
from tests.unit.gateway.tables import target


@dataclass(eq=False)
class Stream:
    """A request at an engine and its progress, as the relay would show it."""

    size_bytes: int = 0
    is_held_back: bool = False
    status: int | None = None
    is_streamed: bool = True

    def __post_init__(self) -> None:
        self.progress: Progress | None = self


class Desk:
    """One worker's loads, looked at by an observer."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.loads = Loads(self.clock, open_seat({}))
        self.observer = Observer()

    def begin(self, request: Stream, id_: str = "t1", runtime: str = "r") -> Stream:
        load = self.loads.of(target(id_, runtime=runtime))
        assert load.slots.try_take(STANDARD)
        load.begin(request)
        return request

    def end(self, request: Stream, id_: str = "t1") -> None:
        self.loads.of(target(id_)).end(request, STANDARD)

    def look(self, after_s: float = 0.0, runtime: str = "r") -> RuntimeActivity:
        self.clock.now_s += after_s
        return self.observer.observe(self.loads, self.clock.now_s).get(runtime, RuntimeActivity())


def test_what_never_had_a_request_is_not_told() -> None:
    desk = Desk()
    desk.loads.of(target("t1"))
    assert desk.observer.observe(desk.loads, 1.0) == {}


def test_idleness_counts_from_the_end_of_the_last_request() -> None:
    desk = Desk()
    request = desk.begin(Stream())
    assert (desk.look(5).active, desk.look().idle_s) == (1, None)
    desk.end(request)
    assert (desk.look(3).active, desk.look().idle_s) == (0, 3.0)


def test_bytes_of_answers_under_way_and_of_those_that_are_over_add_up() -> None:
    desk = Desk()
    one, two = desk.begin(Stream(100)), desk.begin(Stream(10))
    assert desk.look().bytes_total == 110
    desk.end(one)
    two.size_bytes = 25
    assert desk.look().bytes_total == 125


def test_a_stream_without_new_bytes_stands_still_and_one_byte_ends_that() -> None:
    desk = Desk()
    request = desk.begin(Stream())
    assert [desk.look().stalled_s, desk.look(4).stalled_s, desk.look(2).stalled_s] == [0, 4, 6]
    request.size_bytes += 1
    assert [desk.look(1).stalled_s, desk.look(2).stalled_s] == [0, 2]


def test_the_longest_silence_counts() -> None:
    desk = Desk()
    desk.begin(Stream())
    desk.look()
    desk.clock.now_s += 5
    moving = desk.begin(Stream())
    moving.size_bytes = 3
    assert desk.look().stalled_s == 5


def test_a_client_that_does_not_read_is_not_the_engines_silence() -> None:
    desk = Desk()
    request = desk.begin(Stream())
    desk.look()
    request.is_held_back = True
    assert desk.look(60).stalled_s == 0
    request.is_held_back = False
    assert [desk.look(1).stalled_s, desk.look(2).stalled_s] == [0, 2]


def test_a_buffered_answer_is_never_taken_for_a_silent_one() -> None:
    desk = Desk()
    desk.begin(Stream(is_streamed=False))
    desk.look()
    assert desk.look(600).stalled_s == 0


def test_targets_of_one_runtime_are_told_together() -> None:
    desk = Desk()
    desk.begin(Stream(5), "t1")
    desk.begin(Stream(7), "t2")
    desk.begin(Stream(9), "other", runtime="s")
    with desk.loads.of(target("t2", runtime="r")).wait():
        found = desk.look()
    assert (found.active, found.waiting, found.bytes_total) == (2, 1, 12)


def test_a_target_that_left_the_table_is_told_of_until_its_last_request_ends() -> None:
    desk = Desk()
    request = desk.begin(Stream())
    desk.loads.settle(())
    assert desk.look().active == 1
    desk.end(request)
    desk.loads.settle(())
    assert desk.look() == RuntimeActivity()


def test_an_adapters_requests_are_told_by_its_name_and_by_when_they_ended() -> None:
    desk = Desk()
    load = desk.loads.of(target("t1", runtime="r"))
    load.enter("x")
    load.enter("x")
    with load.staying("y"), load.staying(""):
        assert desk.look().adapters == {"x": AdapterActivity(in_use=2), "y": AdapterActivity(in_use=1)}
    load.leave("x")
    assert desk.look(3.0).adapters == {
        "x": AdapterActivity(in_use=1, idle_s=3.0),
        "y": AdapterActivity(idle_s=3.0),
    }
