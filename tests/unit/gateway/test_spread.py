"""Sixteen replicas of one model, from a cold start: how evenly requests are spread, with the real loads and choice."""

import json
import random
from collections import Counter, deque
from pathlib import Path

import pytest

from core.client import DaemonClient
from core.http.pool import UpstreamPool
from core.log import get_logger
from gateway.board import Board, Seat, open_seat
from gateway.choice import Choice
from gateway.loads import Loads
from gateway.snapshot import SnapshotFile
from gateway.state import RouteState
from gateway.table import CHAT
from gateway.turns import STANDARD
from tests.unit.gateway.hand_clock import HandClock
from tests.unit.gateway.tables import model, table, target

REPLICAS = 16
MOST = 1.3
ALL = 1 << 30


class Worker:
    """One of the gateway's: what it knows, and whom it asks."""

    def __init__(self, seat: Seat, clock: HandClock) -> None:
        loads = Loads(clock, seat)
        nowhere = Path("/nonexistent")
        self.state = RouteState(DaemonClient(nowhere), SnapshotFile(nowhere), UpstreamPool(), loads, get_logger("test"))
        targets = [target(f"n{number}/m", max_concurrency=4096) for number in range(REPLICAS)]
        self.state.apply(table(model("m", *targets)))
        self._choice = Choice(self.state, loads)

    def send(self, body: bytes) -> str:
        """To whom a request goes, which is there from now on."""
        assert self.state.routes is not None
        entry = self.state.routes.lookup.models["m"]
        order = self._choice.take_now(self.state.routes, entry, CHAT, STANDARD, body)
        assert order is not None
        return order.targets[0].id

    def answered(self, target_id: str) -> None:
        assert self.state.routes is not None
        self.state.routes.upstreams[target_id].load.slots.release(STANDARD)


def ask(text: str) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()


def conversation(number: int) -> bytes:
    """The beginning of one that is worth finding in an engine's cache again."""
    return ask(f"conversation {number}: " + "word " * 600)


def ratio(counts: Counter[str]) -> float:
    assert len(counts) == REPLICAS
    return max(counts.values()) / min(counts.values())


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("requests", "under_way"),
    [(480, ALL), (1600, ALL), (1600, 64), (3200, 128)],
    ids=["a burst", "a large burst", "64 at once", "128 at once"],
)
@pytest.mark.parametrize("kind", ["short", "conversations"])
def test_replicas_get_alike_from_a_cold_start(
    kind: str, requests: int, under_way: int, seed: int, workers: int
) -> None:
    chance = random.Random(seed)
    board, clock = Board.create(), HandClock()
    columns: list[int] = []
    for _ in range(workers):
        columns.append(board.offer_column(set(columns)))
    crew = [Worker(Seat(board, column), clock) for column in columns]
    counts: Counter[str] = Counter()
    open_: deque[tuple[Worker, str]] = deque()
    for _ in range(requests):
        worker, number = chance.choice(crew), chance.getrandbits(48)
        chosen = worker.send(conversation(number) if kind == "conversations" else ask(f"question {number}"))
        counts[chosen] += 1
        open_.append((worker, chosen))
        if len(open_) > under_way:
            # Engines that are alike answer in the order in which they were asked.
            asked, at = open_.popleft()
            asked.answered(at)
    board.close()
    assert ratio(counts) <= MOST


def test_one_conversation_that_everybody_has_is_spread_after_all() -> None:
    worker = Worker(open_seat({}), HandClock())
    counts = Counter(worker.send(conversation(1)) for _ in range(1600))
    assert ratio(counts) <= MOST
