"""One worker's requests that wait for a slot of one target, in the order of their arrival."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.turns import INTERACTIVE, STANDARD

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Waiter(Generic[T]):
    """A request that waits."""

    unit: int
    stamp: int
    """When it came: nanoseconds, monotonic; the same clock in all workers."""
    found: asyncio.Future[T | None]
    """Where it has a slot now; None: things have changed, look again."""
    others: tuple[T, ...] = ()
    """Where it could be served as well."""


class Queue(Generic[T]):
    """Two lines, one for each class. Leaving from the middle is as cheap as from the front."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[int, dict[Waiter[T], None]] = {STANDARD: {}, INTERACTIVE: {}}

    def __len__(self) -> int:
        return len(self._lines[STANDARD]) + len(self._lines[INTERACTIVE])

    def __contains__(self, waiter: Waiter[T]) -> bool:
        return waiter in self._lines[waiter.unit]

    def __iter__(self) -> Iterator[Waiter[T]]:
        yield from self._lines[INTERACTIVE]
        yield from self._lines[STANDARD]

    def add(self, waiter: Waiter[T]) -> None:
        self._lines[waiter.unit][waiter] = None

    def remove(self, waiter: Waiter[T]) -> None:
        del self._lines[waiter.unit][waiter]

    def head(self, unit: int) -> Waiter[T] | None:
        return next(iter(self._lines[unit]), None)

    def oldest(self, unit: int) -> int:
        """The stamp of the first in line; 0: nobody waits."""
        head = self.head(unit)
        return head.stamp if head is not None else 0
