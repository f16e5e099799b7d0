"""Which runtimes should leave or come without anybody asking: idle stops and preferred-warm starts. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stay:
    """What decides whether a running runtime stays."""

    runtime_id: str
    keep_warm: bool
    idle_stop_s: float
    """0: it is never stopped for being idle."""
    busy: bool
    idle_s: float | None
    """Since its last request ended; None: it never had one."""
    running_s: float
    """Since it serves; a load must not count as idleness."""
    ours: bool = True
    """False: another node owns it, and decides how long it stays."""


def idle_runtimes(stays: Iterable[Stay]) -> list[str]:
    """Those whose time without a request is over."""
    return [stay.runtime_id for stay in stays if _is_over(stay)]


def _is_over(stay: Stay) -> bool:
    if not stay.ours or stay.keep_warm or stay.busy or stay.idle_stop_s <= 0:
        return False
    unused_s = stay.running_s if stay.idle_s is None else min(stay.idle_s, stay.running_s)
    return unused_s >= stay.idle_stop_s
