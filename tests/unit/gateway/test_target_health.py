"""What two workers know of one target: what either finds out, both go by."""

from core.http.verdict import Ended
from gateway.board import Board, Seat
from gateway.ejection import COOLDOWN_S, STREAK, Standing
from gateway.loads import Loads
from gateway.target_health import TargetHealth
from tests.unit.gateway.hand_clock import HandClock
from tests.unit.gateway.tables import target

TARGET = target("t")


class Witness:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def failed(self, target_id: str, because: str) -> None:
        """Each failure; not what these tests are about."""

    def ejected(self, target_id: str, because: str, for_s: float, detail: str) -> None:
        self.told.append(f"{target_id} out because {because} for {for_s:.0f}")

    def readmitted(self, target_id: str) -> None:
        self.told.append(f"{target_id} back")


class Workers:
    """So many workers at one board, each with the same target."""

    def __init__(self, count: int = 2) -> None:
        self.clock = HandClock()
        self.board = Board.create(columns=count + 1)
        taken: set[int] = set()
        for _ in range(count):
            taken.add(self.board.offer_column(taken))
        self.witness = Witness()
        self.loads = [Loads(self.clock, Seat(Board(self.board.fd), column), self.witness) for column in sorted(taken)]
        self.health: list[TargetHealth] = [each.of(TARGET).health for each in self.loads]

    def standings(self) -> list[Standing]:
        return [each.standings([TARGET]).get("t", Standing.GOOD) for each in self.loads]


def test_a_failure_that_one_worker_met_is_known_to_all() -> None:
    workers = Workers(4)
    assert workers.standings() == [Standing.GOOD] * 4
    workers.health[2].failed(Ended.CONNECT_FAILED)
    assert workers.standings() == [Standing.OUT] * 4
    assert workers.witness.told == ["t out because connect_failed for 5"]


def test_an_answer_that_one_worker_got_lets_all_in() -> None:
    workers = Workers()
    workers.health[0].failed(Ended.CONNECT_FAILED)
    workers.health[1].failed(Ended.CONNECT_FAILED)
    workers.clock.now_s += COOLDOWN_S
    assert workers.standings() == [Standing.RETURNING] * 2
    assert workers.health[1].is_doubted
    workers.health[1].worked(workers.health[1].mark)
    assert workers.standings() == [Standing.GOOD] * 2
    assert workers.witness.told == ["t out because connect_failed for 5", "t back"]


def test_only_one_request_of_all_workers_finds_out() -> None:
    workers = Workers()
    workers.health[0].failed(Ended.CONNECT_FAILED)
    workers.clock.now_s += COOLDOWN_S
    assert workers.health[0].try_probe()
    assert workers.standings() == [Standing.OUT] * 2
    assert not workers.health[0].try_probe() and not workers.health[1].try_probe()
    assert workers.health[0].is_probed
    workers.health[0].end_probe()
    assert workers.health[1].try_probe()


def test_a_worker_that_dies_while_it_finds_out_leaves_the_failure_and_frees_the_probe() -> None:
    workers = Workers()
    workers.health[1].failed(Ended.CONNECT_FAILED)
    workers.clock.now_s += COOLDOWN_S
    assert workers.health[1].try_probe()
    workers.board.clear_column(2)
    assert workers.standings()[0] is Standing.RETURNING
    assert workers.health[0].try_probe()


def test_what_a_dead_worker_forgave_stays_forgiven() -> None:
    workers = Workers()
    workers.health[0].failed(Ended.CONNECT_FAILED)
    workers.health[1].worked(workers.health[1].mark)
    workers.board.clear_column(2)
    assert workers.standings()[0] is Standing.GOOD


def test_news_are_heard_though_a_dead_workers_count_is_gone() -> None:
    workers = Workers()
    workers.health[1].rest(5)
    assert workers.standings()[0] is Standing.RESTING
    workers.board.clear_column(2)
    workers.clock.now_s += 6
    assert workers.standings()[0] is Standing.GOOD
    workers.health[0].failed(Ended.CONNECT_FAILED)
    assert workers.standings()[0] is Standing.OUT


def test_streaks_are_each_workers_own() -> None:
    workers = Workers()
    for _ in range(STREAK - 1):
        workers.health[0].failed(Ended.SERVER_ERROR)
        workers.health[1].failed(Ended.SERVER_ERROR)
    assert workers.standings() == [Standing.GOOD] * 2
    workers.health[0].failed(Ended.SERVER_ERROR)
    assert workers.standings() == [Standing.OUT] * 2


def test_a_target_that_comes_back_owes_nobody_the_requests_that_it_missed() -> None:
    workers = Workers(1)
    loads, other = workers.loads[0], workers.loads[0].of(target("u"))
    here = loads.of(TARGET)
    here.recent, other.recent = 3.0, 500.0
    workers.health[0].failed(Ended.CONNECT_FAILED)
    assert workers.standings() == [Standing.OUT]
    workers.health[0].worked(workers.health[0].mark)
    assert workers.standings() == [Standing.GOOD]
    recent = loads.recent([here, other])
    assert abs(recent[0] - recent[1]) <= 1
