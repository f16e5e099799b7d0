"""How long an engine that crashed waits before it is started again, and when to give up. Pure.

The service manager brings it back at once, and gives up only after quick crashes (five within two minutes). That is
no back-off, which systemd has since 254 only, and an engine that loads for a minute before each crash would never
meet the limit. So the daemon counts too.
"""

from dataclasses import dataclass

WINDOW_S = 600.0
LIMIT = 5
_FIRST_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Crashes:
    """When a runtime's engine ended by itself, lately."""

    at_s: tuple[float, ...] = ()

    def add(self, now_s: float) -> "Crashes":
        """One more; what is older than the window is forgotten."""
        return Crashes((*(at_s for at_s in self.at_s if now_s - at_s < WINDOW_S), now_s))

    @property
    def is_loop(self) -> bool:
        """Too many: starting it again would only go on like this."""
        return len(self.at_s) > LIMIT

    @property
    def pause_s(self) -> float:
        """0 after the first, which the service manager handles at once; then 1, 2, 4, … s."""
        return 0.0 if len(self.at_s) < 2 else _FIRST_PAUSE_S * 2.0 ** (len(self.at_s) - 2)
