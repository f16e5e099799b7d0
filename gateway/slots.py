"""Slots of one target, held exactly over all workers, and the queue in front of them.

Taking a slot is writing first and checking the sum, and giving back when it is over: the limit is never exceeded.
Who finds no free slot waits; a slot that is freed goes to whoever has waited longest, in whichever worker
(`gateway.turns`). The worker that frees it knows from the board whose turn it is, and wakes that one. Each worker
that has somebody waiting also looks by itself every `LOOK_S`, so a lost wake-up costs a moment and nothing else.

A worker that does not answer (it was stopped, or computes) must not keep a free slot from everybody: after `STUCK_S`
the others go on without it. The queue of one that died is gone with its column.

Live: limits change with the route table. More slots let waiting requests in at once; fewer end nothing.
"""

import asyncio
from collections.abc import Sequence

from core.clock import Clock
from gateway.board import Cell, Row
from gateway.errors import ApiError
from gateway.turns import INTERACTIVE, STANDARD, WAITER, Limits, Standing, Turn, count, count_waiting, fits, next_turn
from gateway.waiting import Queue, Waiter

LOOK_S = 0.02
STUCK_S = 0.25

_OLDEST = {STANDARD: Cell.OLDEST_STANDARD, INTERACTIVE: Cell.OLDEST_INTERACTIVE}


class Slots:
    """See the module. One for each target in each worker; lives on its loop."""

    __slots__ = (
        "_blocked",
        "_clock",
        "_counts",
        "_looking",
        "_most_standard",
        "_queue",
        "_read_counts",
        "_row",
        "_seat",
        "_write_counts",
        "limits",
    )

    def __init__(self, row: Row, clock: Clock) -> None:
        self.limits = Limits()
        self._most_standard = 1
        self._row = row
        self._seat = row.seat
        self._write_counts = row.writer(Cell.COUNTS)
        self._read_counts = row.reader(Cell.COUNTS)
        self._clock = clock
        self._counts = 0
        """Ours; what stands on the board."""
        self._queue: Queue[Slots] = Queue()
        self._looking: asyncio.TimerHandle | None = None
        self._blocked = (0, 0.0)
        """Whose turn it was while we waited, and since when."""

    # Taking and giving back: this runs for every request

    def try_take(self, unit: int) -> bool:
        """Take a slot if one is free and nobody waits for it."""
        self._counts = own = self._counts + unit
        counts = self._write_counts(own)
        # The usual case, without a call: nobody waits and nothing interactive is there, so it is a small number.
        if counts <= self._most_standard or (counts < WAITER and fits(counts, unit, self.limits)):
            return True
        self.release(unit)
        return False

    def release(self, unit: int) -> None:
        """The engine works on one request less."""
        self._counts = own = self._counts - unit
        if self._write_counts(own) >= WAITER:
            self.let_in()

    # Waiting

    async def wait(self, unit: int, model: str, others: Sequence["Slots"] = ()) -> "Slots | None":
        """Wait for a slot, here or at one of the others; returns whose was taken, or None: look again.

        Raises: ApiError when the queue is full or the wait was too long.
        """
        waiter = self._join(unit, model, tuple(others))
        try:
            async with asyncio.timeout(self.limits.queue_timeout_s):
                return await waiter.found
        except TimeoutError:
            self._leave(waiter)
            raise self._refusal("RUNTIME_QUEUE_TIMEOUT", f"The model '{model}' was busy for too long.", model) from None
        except BaseException:
            # The client left. It may have been given a slot in the same turn of the loop.
            self._leave(waiter)
            raise

    def look_again(self) -> None:
        """Send everybody who waits back to the route table: the target is not what it was."""
        for waiter in list(self._queue):
            self._queue.remove(waiter)
            if not waiter.found.done():
                waiter.found.set_result(None)
        self._publish()

    def configure(self, limits: Limits) -> None:
        """Hold these limits from now on."""
        if limits != self.limits:
            self.limits = limits
            self._most_standard = limits.slots - limits.reserved
            self.let_in()

    def close(self) -> None:
        """The target is gone from the table, and nobody is here any more."""
        if self._looking is not None:
            self._looking.cancel()
        # The row may soon be another target's.
        self.limits = Limits(slots=0, queue=0)
        self._most_standard = 0
        self._row.free()

    def let_in(self) -> None:
        """Give free slots to those whose turn it is; wake the worker that has them, when it is not this one."""
        while True:
            turn = next_turn(self._standing(), self.limits)
            if turn is None:
                return
            waiter = self._queue.head(turn.unit)
            if waiter is None or waiter.stamp != turn.stamp:
                self._wake(turn)
                passing = self._pass_by(turn)
                if passing is None:
                    return
                turn, waiter = passing
            if waiter.found.done():
                self._queue.remove(waiter)
                self._publish()
            elif not self._admit(turn, waiter):
                return

    @property
    def in_use(self) -> int:
        """Requests at the target and in front of it, over all workers."""
        counts = sum(self._read_counts())
        return count(counts) + count_waiting(counts)

    @property
    def standing(self) -> tuple[int, int]:
        """Requests at the target, and in front of it, over all workers."""
        counts = sum(self._read_counts())
        return count(counts), count_waiting(counts)

    @property
    def row_index(self) -> int:
        """Names the target on the board, for all workers."""
        return self._row.index

    @property
    def waiting(self) -> int:
        """Of this worker."""
        return len(self._queue)

    # How it is done

    def _join(self, unit: int, model: str, others: tuple["Slots", ...]) -> Waiter["Slots"]:
        if count_waiting(self._write_counts(self._counts + WAITER)) > self.limits.queue:
            self._write_counts(self._counts)
            raise self._refusal("RUNTIME_QUEUE_FULL", f"Too many requests wait for the model '{model}'.", model)
        stamp = int(self._clock.monotonic_s() * 1e9)
        waiter = Waiter(unit, stamp, asyncio.get_running_loop().create_future(), others)
        self._queue.add(waiter)
        self._publish()
        self.let_in()
        if self._looking is None and self._queue:
            self._look_later()
        return waiter

    def _leave(self, waiter: Waiter["Slots"]) -> None:
        if waiter in self._queue:
            self._queue.remove(waiter)
            self._publish()
            self.let_in()
        elif waiter.found.done() and not waiter.found.cancelled():
            given = waiter.found.result()
            if given is not None:
                given.release(waiter.unit)

    def _admit(self, turn: Turn, waiter: Waiter["Slots"]) -> bool:
        """False: another worker was quicker."""
        row = self._row
        self._counts += turn.unit
        if not fits(self._write_counts(self._counts), turn.unit, self.limits):
            self._counts -= turn.unit
            self._write_counts(self._counts)
            return False
        if turn.overtakes:
            row.put(Cell.OVERTAKINGS, row.own(Cell.OVERTAKINGS) + 1)
        elif turn.unit == STANDARD:
            row.put(Cell.OVERTAKINGS_SEEN, sum(row.values(Cell.OVERTAKINGS)))
        self._queue.remove(waiter)
        self._publish()
        waiter.found.set_result(self)
        return True

    def _standing(self) -> Standing:
        row = self._row
        return Standing(
            counts=sum(self._read_counts()),
            oldest_standard=_least(row.values(Cell.OLDEST_STANDARD)),
            oldest_interactive=_least(row.values(Cell.OLDEST_INTERACTIVE)),
            overtakings=sum(row.values(Cell.OVERTAKINGS)) - max(row.values(Cell.OVERTAKINGS_SEEN)),
        )

    def _pass_by(self, turn: Turn) -> tuple[Turn, Waiter["Slots"]] | None:
        """Whom of our own to let in, because the worker whose turn it is has not moved for too long."""
        now_s = self._clock.monotonic_s()
        stamp, since_s = self._blocked
        if stamp != turn.stamp:
            self._blocked = (turn.stamp, now_s)
            return None
        if now_s - since_s < STUCK_S:
            return None
        ours = Standing(sum(self._read_counts()), self._queue.oldest(STANDARD), self._queue.oldest(INTERACTIVE))
        own = next_turn(ours, self.limits)
        waiter = self._queue.head(own.unit) if own is not None else None
        return None if own is None or waiter is None else (own, waiter)

    def _publish(self) -> None:
        """Tell the others how our queue stands."""
        row, queue = self._row, self._queue
        row.put(Cell.OLDEST_STANDARD, queue.oldest(STANDARD))
        row.put(Cell.OLDEST_INTERACTIVE, queue.oldest(INTERACTIVE))
        self._counts = self._counts % WAITER + len(queue) * WAITER
        self._write_counts(self._counts)

    def _wake(self, turn: Turn) -> None:
        for column, stamp in enumerate(self._row.values(_OLDEST[turn.unit])):
            if stamp == turn.stamp and column != self._seat.column:
                self._seat.board.wake(column)

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = None
        self.let_in()
        for unit in (INTERACTIVE, STANDARD):
            self._send_elsewhere(unit)
        if self._queue:
            self._look_later()

    def _send_elsewhere(self, unit: int) -> None:
        """Those who could be served at another target as well go where a slot is free."""
        while (waiter := self._queue.head(unit)) is not None and not waiter.found.done():
            taken = next((other for other in waiter.others if other.try_take(unit)), None)
            if taken is None:
                return
            self._queue.remove(waiter)
            self._publish()
            waiter.found.set_result(taken)

    def _refusal(self, code: str, message: str, model: str) -> ApiError:
        return ApiError(429, code, message, model=model, retry_after_s=self.limits.retry_after_s)


def _least(stamps: Sequence[int]) -> int:
    return min((stamp for stamp in stamps if stamp), default=0)
