"""Limits of keys over several workers at one board, in one process, with a clock that is turned by hand."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.api import ApiKey
from gateway.board import Board, Seat
from gateway.ending import RequestRecord
from gateway.errors import ApiError
from gateway.grant import Grant
from gateway.key_limits import KeyLimited, KeyLimiter, KeyUse
from gateway.limit_headers import ANTHROPIC, OPENAI
from gateway.row_keys import ROWS
from tests.unit.gateway.hand_clock import HandClock


class Room:
    """Some workers at one board."""

    def __init__(self, count: int = 4) -> None:
        self.board = Board.create(columns=count + 3)
        self.clock = HandClock()
        taken: set[int] = set()
        for _ in range(count):
            taken.add(self.board.offer_column(taken))
        self.columns = sorted(taken)
        self.workers = [KeyLimiter(Seat(Board(self.board.fd), column), self.clock) for column in self.columns]

    def die(self, number: int) -> None:
        """The worker is killed, and another takes its place."""
        self.board.clear_column(self.columns[number])
        self.workers[number] = KeyLimiter(Seat(Board(self.board.fd), self.columns[number]), self.clock)


def grant(requests: int = 0, tokens: int = 0, concurrency: int = 0, *, identity: str = "aa") -> Grant:
    limits = {"requests_per_minute": requests, "tokens_per_minute": tokens, "concurrency": concurrency}
    return Grant("k", ApiKey(sha256=identity, **limits))  # type: ignore[arg-type]


def take(limiter: KeyLimiter, of: Grant) -> KeyUse:
    use = limiter.take(of, OPENAI)
    assert use is not None
    return use


def passes(limiter: KeyLimiter, of: Grant, tokens: int = 0) -> bool:
    """One whole request."""
    try:
        record = RequestRecord("id", "/v1/x", 1.0, place=take(limiter, of), completion_tokens=tokens)
    except KeyLimited:
        return False
    limiter.request_ended(record)
    return True


def refusal(limiter: KeyLimiter, of: Grant) -> KeyLimited:
    with pytest.raises(KeyLimited) as caught:
        take(limiter, of)
    return caught.value


def test_a_key_without_limits_takes_nothing() -> None:
    assert Room(1).workers[0].take(grant(), OPENAI) is None


def test_just_so_many_requests_pass_over_all_workers() -> None:
    room, key = Room(), grant(requests=100)
    assert sum(passes(random.choice(room.workers), key) for _ in range(1000)) == 100


def test_the_minute_slides() -> None:
    room, key = Room(2), grant(requests=2)
    one, two = room.workers
    assert passes(one, key)
    room.clock.now_s += 30
    assert passes(two, key) and not passes(one, key)
    room.clock.now_s += 30
    # The first is a minute old, which is when it may still be within one of somebody's minutes.
    assert not passes(one, key)
    room.clock.now_s += 1
    assert passes(one, key) and not passes(two, key)
    room.clock.now_s += 30
    assert passes(two, key) and not passes(one, key)


@settings(max_examples=60)
@given(
    limit=st.integers(1, 20),
    steps=st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 20.0)), min_size=1, max_size=120),
)
def test_no_sixty_seconds_ever_see_more_than_the_limit(limit: int, steps: list[tuple[int, float]]) -> None:
    room, key = Room(4), grant(requests=limit)
    passed: list[float] = []
    for worker, wait_s in steps:
        room.clock.now_s += wait_s
        now_s = room.clock.now_s
        if passes(room.workers[worker], key):
            passed.append(now_s)
        else:
            # Never refused without need: within 61 seconds there were as many as there may be.
            assert sum(at > now_s - 61 for at in passed) >= limit
        assert sum(at > now_s - 60 for at in passed) <= limit


def test_a_client_that_keeps_to_its_limit_is_hardly_ever_refused() -> None:
    room, key = Room(4), grant(requests=100)
    passed = 0
    for number in range(1000):
        passed += passes(room.workers[number % 4], key)
        room.clock.now_s += 0.6
    assert passed >= 980


def test_a_refused_request_takes_nothing() -> None:
    room, key = Room(1), grant(requests=1, concurrency=5)
    assert passes(room.workers[0], key)
    for _ in range(50):
        assert not passes(room.workers[0], key)
    room.clock.now_s += 61
    assert passes(room.workers[0], key)


@pytest.mark.parametrize("later_s", [0.0, 0.4, 5.0, 59.9])
def test_a_refusal_says_when_to_come_back_and_that_is_true(later_s: float) -> None:
    room, key = Room(2), grant(requests=3)
    for _ in range(3):
        assert passes(room.workers[0], key)
    room.clock.now_s += later_s
    error = refusal(room.workers[1], key)
    headers = dict(error.headers())
    assert (error.http_status, error.code) == (429, "key_requests_exceeded")
    assert headers["retry-after"] + "s" == headers["x-ratelimit-reset-requests"]
    assert (headers["x-ratelimit-limit-requests"], headers["x-ratelimit-remaining-requests"]) == ("3", "0")
    room.clock.now_s += error.retry_after_s - 1.001
    assert not passes(room.workers[1], key)
    room.clock.now_s += 1.001
    assert passes(room.workers[1], key)


def test_tokens_count_from_the_end_of_a_request_for_all_workers() -> None:
    room, key = Room(2), grant(tokens=1000)
    one, two = room.workers
    running = take(one, key)
    assert passes(two, key, tokens=999)
    assert passes(one, key, tokens=1)
    error = refusal(two, key)
    assert (error.code, error.retry_after_s) == ("key_tokens_exceeded", 61)
    assert dict(error.headers())["x-ratelimit-remaining-tokens"] == "0"
    room.clock.now_s += 61
    assert passes(two, key)
    # One that began long ago counts when it ends.
    one.request_ended(RequestRecord("id", "/v1/x", 1.0, place=running, prompt_tokens=600, completion_tokens=600))
    assert refusal(two, key).code == "key_tokens_exceeded"


def test_the_wait_for_tokens_is_until_enough_of_them_are_a_minute_old() -> None:
    room, key = Room(1), grant(tokens=100)
    (one,) = room.workers
    for tokens in (10, 60, 60):
        assert passes(one, key, tokens=tokens)
        room.clock.now_s += 10
    assert refusal(one, key).retry_after_s == 61 - 20
    room.clock.now_s += 41
    assert passes(one, key)


@pytest.mark.parametrize("tokens", [1 << 31, 1 << 33, 1 << 62])
def test_tokens_beyond_all_bounds_are_only_very_many(tokens: int) -> None:
    room, key = Room(1), grant(tokens=1_000_000_000)
    (one,) = room.workers
    assert passes(one, key, tokens=tokens) and passes(one, grant(requests=5), tokens=tokens)
    assert refusal(one, key).code == "key_tokens_exceeded"
    room.clock.now_s += 61
    assert passes(one, key)


def test_no_more_are_under_way_at_once_than_the_key_may_have() -> None:
    room, key = Room(4), grant(concurrency=5)
    held = [take(random.choice(room.workers), key) for _ in range(5)]
    for worker in room.workers:
        error = refusal(worker, key)
        assert (error.code, error.retry_after_s) == ("key_concurrency_exceeded", 1)
    held.pop().release()
    assert passes(room.workers[0], key)
    for use in held:
        use.release()
        use.release()  # twice said
    held = [take(random.choice(room.workers), key) for _ in range(5)]
    assert refusal(room.workers[0], key).code == "key_concurrency_exceeded"


def test_a_request_that_is_begun_anew_never_was() -> None:
    room, key = Room(2), grant(requests=1, concurrency=1)
    one, two = room.workers
    for _ in range(5):
        use = take(one, key)
        use.undo()
        use.undo()
    use = take(two, key)
    use.release()
    use.undo()
    assert passes(one, key) and not passes(two, key)


def test_a_dead_worker_leaves_what_it_took_and_frees_what_it_held() -> None:
    room, key = Room(4), grant(requests=10, tokens=1000, concurrency=2)
    for worker in room.workers[:2]:
        for _ in range(3):
            assert passes(worker, key, tokens=100)
        take(worker, key)
    assert refusal(room.workers[2], key).code == "key_concurrency_exceeded"
    for number in (0, 1, 0):
        room.die(number)
    assert sum(passes(random.choice(room.workers), key) for _ in range(20)) == 10 - 8
    room.clock.now_s += 61
    assert sum(passes(random.choice(room.workers), key) for _ in range(20)) == 10


def test_the_tokens_of_dead_workers_stay_used() -> None:
    room, key = Room(2), grant(tokens=100)
    assert passes(room.workers[0], key, tokens=60) and passes(room.workers[1], key, tokens=60)
    room.die(0)
    room.die(1)
    assert refusal(room.workers[0], key).code == "key_tokens_exceeded"


def test_keys_do_not_share() -> None:
    room = Room(2)
    for number in range(200):
        key = grant(requests=1, identity=f"{number:02x}")
        assert passes(room.workers[0], key) and not passes(room.workers[1], key)


def test_a_key_that_nobody_uses_makes_room_for_another_and_comes_back_without_a_past() -> None:
    room = Room(1)
    (one,) = room.workers
    keys = [grant(requests=1, identity=f"{number:x}") for number in range(ROWS * 2)]
    with pytest.raises(ApiError) as caught:
        for key in keys:
            assert passes(one, key)
    assert (caught.value.http_status, caught.value.code) == (503, "board_full")
    room.clock.now_s += 62
    assert all(passes(one, key) for key in keys[-1000:])


def test_a_key_in_use_keeps_its_row_however_long_it_takes() -> None:
    room, key = Room(2), grant(concurrency=1)
    one, two = room.workers
    take(one, key)
    room.clock.now_s += 1000
    for number in range(100):
        assert passes(one, grant(requests=1, identity=f"x{number}"))
        assert passes(two, grant(requests=1, identity=f"x{number}")) is False
    assert refusal(two, key).code == "key_concurrency_exceeded"


def test_an_answer_says_what_is_left_in_the_words_of_its_api() -> None:
    room, key = Room(2), grant(requests=3, tokens=50)
    assert passes(room.workers[0], key, tokens=20)
    use = room.workers[1].take(key, OPENAI)
    assert use is not None
    assert use.header_lines() == (
        b"x-ratelimit-limit-requests: 3\r\nx-ratelimit-remaining-requests: 1\r\n"
        b"x-ratelimit-limit-tokens: 50\r\nx-ratelimit-remaining-tokens: 30\r\n"
    )
    use = room.workers[0].take(key, ANTHROPIC)
    assert use is not None and b"anthropic-ratelimit-requests-remaining: 0\r\n" in use.header_lines()
    with pytest.raises(KeyLimited) as caught:
        room.workers[0].take(key, ANTHROPIC)
    assert dict(caught.value.headers())["anthropic-ratelimit-requests-reset"] == "1970-01-01T00:02:41Z"
    use = room.workers[0].take(grant(concurrency=3), OPENAI)
    assert use is not None and use.header_lines() == b""
