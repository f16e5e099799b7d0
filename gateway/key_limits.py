"""Holds keys to their limits: requests and tokens in any minute, and requests at once, exact over all workers.

A request takes its place by writing it on the board first and reading the sum after; when that is over a limit, the
place is given back and the request refused at once, so no limit is ever exceeded. Nothing waits here: a client that is
refused is told when to come back. What a request used in tokens is known at its end, and counts from then on: a key
is let in for as long as it has used less than its limit.

A key without limits never comes here.
"""

from core.clock import Clock
from gateway.board import Seat
from gateway.ending import RequestRecord
from gateway.errors import ApiError
from gateway.grant import Grant, KeyLimits
from gateway.key_meter import WINDOW_S, KeyMeter
from gateway.limit_headers import Standing, Words, list_standing, render_standing

_SWEEP_S = 60
_NOBODY_KNOWS_S = 1
"""`Retry-After` where room comes when another request ends."""


class KeyLimited(ApiError):
    """A key has had all that it may have for now."""

    def __init__(self, code: str, message: str, wait_s: int, headers: list[tuple[str, str]]) -> None:
        super().__init__(429, code, message, retry_after_s=wait_s)
        self._headers = headers

    def headers(self) -> list[tuple[str, str]]:
        return [*super().headers(), *self._headers]


class KeyUse:
    """What one request has taken of its key's limits."""

    __slots__ = ("_is_held", "_is_undone", "_limits", "_meter", "_second", "_standing", "_words")

    def __init__(self, meter: KeyMeter, limits: KeyLimits, words: Words, second: int, standing: Standing) -> None:
        self._meter = meter
        self._limits = limits
        self._words = words
        self._second = second
        self._standing = standing
        self._is_held = True
        self._is_undone = False

    def header_lines(self) -> bytes:
        """For the answer."""
        return render_standing(self._words, self._limits, self._standing)

    def charge(self, tokens: int, second: int) -> None:
        """The request used so many tokens; known in this second."""
        if tokens > 0 and not self._meter.is_closed:
            self._meter.tokens.add(second, tokens)
            self._meter.used = second

    def release(self) -> None:
        """The request is over. What is said twice is heard once."""
        if self._is_held:
            self._is_held = False
            self._meter.count(-1)

    def undo(self) -> None:
        """The request is begun anew: it never was."""
        if not self._is_undone and self._limits.requests:
            self._meter.requests.take_back(self._second, 1)
        self._is_undone = True
        self.release()


class KeyLimiter:
    """Of one worker. Hears of the end of every request (`gateway.ending.Listener`)."""

    def __init__(self, seat: Seat, clock: Clock) -> None:
        self._seat = seat
        self._clock = clock
        self._meters: dict[str, KeyMeter] = {}
        self._sweep_at = 0

    def take(self, grant: Grant, words: Words) -> KeyUse | None:
        """A place for one request; None where the key has no limits. Raises: KeyLimited, ApiError (503)."""
        limits = grant.limits
        if limits is None:
            return None
        second = int(self._clock.monotonic_s())
        meter = self._meters.get(grant.identity) or self._open(grant.identity, second)
        meter.used = second
        meter.count(1)
        if limits.requests:
            meter.requests.add(second, 1)
        self._seat.fence()
        # What is not limited is not read.
        active = meter.total_active() if limits.concurrency else 0
        standing = Standing(
            meter.requests.total(second) if limits.requests else 0,
            meter.tokens.total(second) if limits.tokens else 0,
        )
        use = KeyUse(meter, limits, words, second, standing)
        if active > limits.concurrency or standing.requests > limits.requests or self._is_spent(standing, limits):
            use.undo()
            raise self._refusal(meter, limits, words, second, active, standing)
        return use

    def request_ended(self, record: RequestRecord) -> None:
        """Charge what the request used, and give its place back."""
        place = record.place
        if place is not None:
            tokens = record.prompt_tokens + record.completion_tokens
            if tokens:
                place.charge(tokens, int(self._clock.monotonic_s()))
            place.release()

    @staticmethod
    def _is_spent(standing: Standing, limits: KeyLimits) -> bool:
        return 0 < limits.tokens <= standing.tokens

    def _refusal(  # noqa: PLR0913 - all that the words depend on
        self, meter: KeyMeter, limits: KeyLimits, words: Words, second: int, active: int, standing: Standing
    ) -> KeyLimited:
        kind, wait_s = "", _NOBODY_KNOWS_S
        if active > limits.concurrency:
            code, said = "key_concurrency_exceeded", f"{limits.concurrency} requests at once"
        elif standing.requests > limits.requests:
            code, kind, said = "key_requests_exceeded", "requests", f"{limits.requests} requests a minute"
            # The place of this request was given back already.
            wait_s = meter.requests.wait_s(second, standing.requests - limits.requests)
        else:
            code, kind, said = "key_tokens_exceeded", "tokens", f"{limits.tokens} tokens a minute"
            wait_s = meter.tokens.wait_s(second, standing.tokens - limits.tokens + 1)
        headers = list_standing(words, limits, standing, kind=kind, wait_s=wait_s, now_s=self._clock.wall_s())
        return KeyLimited(code, f"This API key may have {said}, and has them.", wait_s, headers)

    def _open(self, identity: str, second: int) -> KeyMeter:
        if second >= self._sweep_at:
            self._sweep(second)
        board = self._seat.board
        row = board.keys.claim(board.fd, identity, self._seat.column)
        if row is None:
            self._sweep(second)
            row = board.keys.claim(board.fd, identity, self._seat.column)
        if row is None:
            message = "Too many API keys are in use at once for their limits to be held."
            raise ApiError(503, "board_full", message, retry_after_s=WINDOW_S)
        meter = self._meters[identity] = KeyMeter(self._seat, row)
        return meter

    def _sweep(self, second: int) -> None:
        """Let go of keys of which nothing counts any more; also when they are gone for good."""
        self._sweep_at = second + _SWEEP_S
        for identity, meter in list(self._meters.items()):
            if not meter.active and meter.used < second - WINDOW_S - 1:
                del self._meters[identity]
                meter.close()
