"""A clock that tests turn."""


class HandClock:
    """See `core.clock.Clock`."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s
