"""What is remembered of one request for its trace, while it goes: whose part it is, and whom it asked when.

Only times and names; spans are made of it when the request is over (`gateway.tracing.spans`). A request that is not
recorded has one of these too, where its engine must be told that it is not.
"""

from dataclasses import dataclass
from random import Random
from time import monotonic, time

from core.http.plan import Attempt
from core.http.pool import Target
from core.http.verdict import Ended
from gateway.tracing.context import PARENT, STATE, Parent, write_parent

MOST_ATTEMPTS = 16
"""Of one request; what is asked after them is not recorded."""
_MOST_WAITS = 16

_NOTHING: frozenset[bytes] = frozenset()
_PARENT = frozenset({PARENT})
_BOTH = frozenset({PARENT, STATE})


@dataclass(slots=True)
class Asked:
    """One attempt at a target; times are monotonic."""

    target: Target
    span_id: int
    began_s: float
    ended_s: float = 0.0
    """0: it was named and never asked, or is not over."""
    ended: Ended | None = None
    status: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Time that a request spent in front of its target."""

    name: str
    began_s: float
    took_s: float


class Trace:
    """One request's."""

    __slots__ = (
        "_ids", "asked", "began_s", "epoch_s", "is_sampled", "method", "parent", "relayed_s", "says", "span_id",
        "trace_id", "waits",
    )  # fmt: skip

    def __init__(self, ids: Random, parent: Parent | None, method: str, *, bound: int) -> None:
        """`bound`: of all numbers with 64 bits, how many are sampled where nobody has decided yet."""
        self._ids = ids
        is_child = parent is not None and parent.trace_id != 0
        self.parent = parent if is_child else None
        self.method = method
        self.began_s = monotonic()
        self.epoch_s = 0.0
        """What to add to a monotonic time to have it since the epoch; set at the end."""
        self.relayed_s = 0.0
        """When the last relay began; 0: none did."""
        self.trace_id = parent.trace_id if parent is not None and is_child else ids.getrandbits(128) or 1
        self.span_id = ids.getrandbits(64) or 1
        self.is_sampled = is_child or (self.trace_id & (1 << 64) - 1) < bound
        self.says = _NOTHING if parent is None else _PARENT if is_child else _BOTH
        """Fields of the client's that its target must not see: it is told anew, or there is no sense in them."""
        self.asked: list[Asked] = []
        self.waits: list[Wait] = []

    def ask(self, target: Target) -> None:
        """The target is asked next."""
        if self.is_sampled and len(self.asked) < MOST_ATTEMPTS:
            self.asked.append(Asked(target, self._ids.getrandbits(64) or 1, monotonic()))

    def over(self, attempt: Attempt) -> None:
        """An attempt is over, and how."""
        for asked in self.asked:
            if asked.target is attempt.target and not asked.ended_s:
                asked.ended_s = monotonic()
                asked.ended, asked.status, asked.detail = attempt.ended, attempt.status, attempt.detail
                return

    def waited(self, name: str, took_s: float) -> None:
        """So long until this moment."""
        if self.is_sampled and len(self.waits) < _MOST_WAITS:
            self.waits.append(Wait(name, monotonic() - took_s, took_s))

    def end(self) -> None:
        """The request is over."""
        self.epoch_s = time() - monotonic()

    @property
    def line(self) -> bytes:
        """What the target that was named last is told."""
        span_id = self.asked[-1].span_id if self.asked else self.span_id
        return write_parent(self.trace_id, span_id, is_sampled=self.is_sampled)
