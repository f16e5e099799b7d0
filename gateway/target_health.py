"""What all workers know of one target's failures: marks on the board, the one probe, and this worker's streak.

Decided in `gateway/ejection.py`; here it is read from the board and written to it. A worker that wrote says so on one
row that all share (`News`), so that a request finds out with one look whether anything is held against anybody.
"""

from typing import Protocol

from core.clock import Clock
from core.http.verdict import Ended
from gateway.board import Cell, Row, Seat
from gateway.ejection import STREAK, Blame, Standing, blame_for, describe_failure, judge, next_mark, rest_s, until_s_of

NEWS_KEY = "\0news of targets"
"""No target's id."""

_NOTICEABLE_S = 0.5
"""A rest that is renewed by less is not told: an engine that refuses a thousand times a second says nothing new."""


class News:
    """How often anything was written about any target."""

    def __init__(self, seat: Seat) -> None:
        self._row = seat.row(NEWS_KEY)
        self._read = self._row.reader(Cell.NEWS)

    def tell(self) -> None:
        self._row.put(Cell.NEWS, self._row.own(Cell.NEWS) + 1)

    def count(self) -> int:
        return sum(self._read())


class Witness(Protocol):
    """Who is told of a target's failures, and once, by the worker that decided it, when it is out and when back."""

    def failed(self, target_id: str, because: str) -> None: ...

    def ejected(self, target_id: str, because: str, for_s: float, detail: str) -> None: ...

    def readmitted(self, target_id: str) -> None: ...


class SilentWitness:
    """Tells nobody."""

    def failed(self, target_id: str, because: str) -> None: ...

    def ejected(self, target_id: str, because: str, for_s: float, detail: str) -> None: ...

    def readmitted(self, target_id: str) -> None: ...


class TargetHealth:
    """One target's, as one worker sees it."""

    __slots__ = (
        "_clock", "_news", "_row", "_streak", "_target_id", "_witness", "failed_s", "is_doubted", "last_error",
    )  # fmt: skip

    def __init__(self, target_id: str, row: Row, clock: Clock, news: News, witness: Witness) -> None:
        self.is_doubted = False
        """Whether an answer of it would be news to this worker. Looked at with every request."""
        self._target_id = target_id
        self._row = row
        self._clock = clock
        self._news = news
        self._witness = witness
        self._streak = 0
        self.last_error = ""
        """Why the last request of this worker that failed there did; empty: none has."""
        self.failed_s = 0.0
        """When that was; monotonic."""

    @property
    def mark(self) -> int:
        return max(self._row.values(Cell.MARK))

    @property
    def forgiven(self) -> int:
        return max(self._row.values(Cell.FORGIVEN))

    @property
    def is_failing(self) -> bool:
        return self.mark > self.forgiven

    @property
    def resting_until_s(self) -> float:
        """Monotonic."""
        return max(self._row.values(Cell.RESTING)) / 1000

    @property
    def is_probed(self) -> bool:
        return any(self._row.values(Cell.PROBING))

    def standing(self) -> Standing:
        return judge(
            self.mark, self.forgiven, self.resting_until_s, self._clock.monotonic_s(), is_probed=self.is_probed
        )

    def failed(
        self, ended: Ended, retry_after_s: float | None = None, *, detail: str = "", status: int | None = None
    ) -> None:
        """A request to it ended like this, for this reason."""
        blame = blame_for(ended)
        if blame is Blame.NONE:
            return
        self.failed_s = self._clock.monotonic_s()
        self.last_error = describe_failure(ended, detail, status)
        self._witness.failed(self._target_id, ended.value)
        if blame is Blame.REST:
            self.rest(rest_s(retry_after_s))
            return
        self._streak += 1
        self.is_doubted = True
        if blame is Blame.OUT or self._streak >= STREAK or self.is_failing:
            self._eject(ended, detail)

    def _eject(self, ended: Ended, detail: str) -> None:
        now_s, known = self._clock.monotonic_s(), self.mark
        mark = next_mark(known, self.forgiven, now_s)
        if mark != known:
            self._row.put(Cell.MARK, mark)
            self._news.tell()
            self._witness.ejected(self._target_id, ended.value, until_s_of(mark) - now_s, detail)

    def rest(self, seconds: float) -> None:
        """It is not asked for so long while others can be."""
        until_s = self._clock.monotonic_s() + seconds
        if until_s - self.resting_until_s > _NOTICEABLE_S:
            self._row.put(Cell.RESTING, int(until_s * 1000))
            self._news.tell()

    def worked(self, mark: int) -> None:
        """It answered a request, before which this was its `mark`. A failure since then stands."""
        self._streak = 0
        known = self.mark
        if known > self.forgiven:
            if known != mark:
                return
            self._forgive(known)
        self.is_doubted = False

    def pardon(self) -> None:
        """The daemon says that it is ready again."""
        self._streak = 0
        if self.is_failing:
            self._forgive(self.mark)

    def _forgive(self, mark: int) -> None:
        self._row.put(Cell.FORGIVEN, mark)
        self._news.tell()
        self._witness.readmitted(self._target_id)

    # The one request that finds out how it is

    def try_probe(self) -> bool:
        """Be the one; whoever was, must `end_probe`."""
        if self.is_probed:
            return False
        self._row.put(Cell.PROBING, 1)
        self._row.seat.fence()
        if sum(self._row.values(Cell.PROBING)) == 1:
            return True
        # Another worker's, or both at once: then the next request tries again.
        self._row.put(Cell.PROBING, 0)
        return False

    def end_probe(self) -> None:
        self._row.put(Cell.PROBING, 0)
