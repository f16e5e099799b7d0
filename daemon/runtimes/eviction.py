"""Which runtimes may make room for another one, and in which order. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from daemon.runtimes.memory import Resident


class Protected(StrEnum):
    """Why a loaded runtime stays. The first that holds is the one that is told."""

    REQUESTED = "requested"
    AUTHORITY = "authority"
    ACTIVE = "active-requests"
    KEEP_WARM = "keep-warm"
    STARTING = "starting"
    RESTARTING = "restarting"
    RESIDENCY = "minimum-residency"
    PREFERRED = "preferred-warm"


@dataclass(frozen=True, slots=True)
class Asking:
    """On whose behalf room is made, and how far that may go."""

    runtime_id: str
    min_residency_s: float = 0.0
    preferred_idle_s: float = 30.0
    may_drain: bool = False
    """Whether a busy runtime whose residency is over may be drained: the asking one has waited long enough."""
    as_preferred: bool = False
    """A preferred-warm start: it only displaces ordinary runtimes that were idle for a while."""


def protection(resident: Resident, asking: Asking) -> Protected | None:
    """Why this loaded runtime must not be evicted; None when it may."""
    if resident.runtime_id == asking.runtime_id:
        return Protected.REQUESTED
    if resident.owner:
        return Protected.AUTHORITY
    if resident.leaving:
        return None
    if resident.is_busy and not (asking.may_drain and resident.resident_s >= asking.min_residency_s):
        return Protected.ACTIVE
    if resident.keep_warm:
        return Protected.KEEP_WARM
    if resident.restarting:
        return Protected.RESTARTING
    if resident.starting:
        return Protected.STARTING
    if resident.resident_s < asking.min_residency_s:
        return Protected.RESIDENCY
    if asking.as_preferred:
        if resident.preferred_warm:
            return Protected.PREFERRED
        if (resident.resident_s if resident.idle_s is None else resident.idle_s) < asking.preferred_idle_s:
            return Protected.RESIDENCY
    return None


def eviction_order(residents: Iterable[Resident]) -> list[Resident]:
    """First what leaves anyway; idle before busy, ordinary before preferred, least recently used, lower priority,
    larger; then by id."""

    def key(resident: Resident) -> tuple[bool, bool, bool, float, int, int, str]:
        # One that never had a request counts as used when it was loaded.
        unused_s = resident.resident_s if resident.idle_s is None else resident.idle_s
        return (
            not resident.leaving,
            resident.is_busy,
            resident.preferred_warm,
            -unused_s,
            resident.priority,
            -sum(resident.needs.values()),
            resident.runtime_id,
        )

    return sorted(residents, key=key)
