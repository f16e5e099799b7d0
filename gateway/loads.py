"""What this worker knows of its targets from its own traffic: requests in flight, recent failures, turns.

A request counts from the moment it is dispatched until the connection to its target was really given back or
closed: a client that left does not free a slot in which the engine still computes.
"""

from collections.abc import Collection, Mapping

from core.clock import Clock

COOLDOWN_S = 5.0


class Loads:
    """Counters by target id. One event loop, no locks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._in_flight: dict[str, int] = {}
        self._cooling: dict[str, float] = {}
        self._turns: dict[str, int] = {}

    @property
    def in_flight(self) -> Mapping[str, int]:
        return self._in_flight

    def cooling(self) -> Collection[str]:
        """Targets that failed less than `COOLDOWN_S` ago."""
        if not self._cooling:
            return ()
        now_s = self._clock.monotonic_s()
        for target_id in [each for each, until_s in self._cooling.items() if until_s <= now_s]:
            del self._cooling[target_id]
        return self._cooling.keys()

    def turn(self, model_id: str) -> int:
        """A number that grows by one with each request for the model."""
        turn = self._turns.get(model_id, 0)
        self._turns[model_id] = turn + 1
        return turn

    def begin(self, target_id: str) -> None:
        self._in_flight[target_id] = self._in_flight.get(target_id, 0) + 1

    def end(self, target_id: str) -> None:
        left = self._in_flight[target_id] - 1
        if left:
            self._in_flight[target_id] = left
        else:
            del self._in_flight[target_id]

    def failed(self, target_id: str) -> None:
        """The target could not be reached or failed: for a while it comes last."""
        self._cooling[target_id] = self._clock.monotonic_s() + COOLDOWN_S

    def worked(self, target_id: str) -> None:
        """The target answered: whatever was held against it is forgotten."""
        if self._cooling:
            self._cooling.pop(target_id, None)
