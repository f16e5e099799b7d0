"""May this runtime be loaded now, and what must go first? Pure: state in, a plan with its reasons out.

For every pool that the runtime needs: projected = max(measured use, sum of what is loaded) + requested, and that
must not exceed the budget. Evictions are all or nothing: either the whole list makes room, or nothing is touched.
`llmgw runtime-plan`, a refusal to a client and the log all print `Plan.message`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from daemon.runtimes.eviction import Asking, Protected, eviction_order, protection
from daemon.runtimes.memory import Pool, Resident


class Verdict(StrEnum):
    """What admission says; also the stable code that clients see."""

    ADMITTED = "runtime_admitted"
    BUSY = "runtime_capacity_busy"
    IMPOSSIBLE = "runtime_capacity_impossible"
    KEEP_WARM = "runtime_keep_warm_conflict"
    AUTHORITY = "runtime_authority_conflict"
    UNKNOWN_SIZE = "runtime_size_unknown"
    NO_DEVICE = "runtime_no_device"

    @property
    def is_retryable(self) -> bool:
        """Whether waiting helps. A refusal that waiting cannot mend carries no `Retry-After`."""
        return self is Verdict.BUSY


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The sum for one pool."""

    pool: Pool
    loaded_mib: int
    requested_mib: int
    projected_mib: int
    """Before any eviction."""

    @property
    def over_mib(self) -> int:
        return max(0, self.projected_mib - self.pool.budget_mib)


@dataclass(frozen=True, slots=True)
class Plan:
    """The decision, what it would do, and why, for every runtime."""

    runtime_id: str
    verdict: Verdict
    message: str
    evict: tuple[str, ...] = ()
    """In order; empty unless admitted."""
    pools: tuple[PoolPlan, ...] = ()
    kept: Mapping[str, Protected] = field(default_factory=dict)
    """Loaded runtimes that may not go, and why."""
    devices: tuple[str, ...] = ()
    """Cards that it would compute on; empty: the CPU."""

    @property
    def allowed(self) -> bool:
        return self.verdict is Verdict.ADMITTED


def plan_admission(request: Resident, residents: Sequence[Resident], pools: Sequence[Pool], asking: Asking) -> Plan:
    """Decide. `request` is the runtime to load; `residents` are all of this node, it included or not."""
    others = [resident for resident in residents if resident.runtime_id != request.runtime_id and resident.loaded]
    if request.loaded:
        return Plan(request.runtime_id, Verdict.ADMITTED, f"{request.runtime_id} is loaded already")
    if not request.needs:
        return Plan(
            request.runtime_id,
            Verdict.UNKNOWN_SIZE,
            f"nothing tells how much memory {request.runtime_id} needs; set runtimes.{request.runtime_id}.memoryGb",
        )
    sums = tuple(_sum(pool, request, others) for pool in pools)
    kept = {r.runtime_id: why for r in others if (why := protection(r, asking)) is not None}
    if not any(one.over_mib for one in sums):
        return Plan(request.runtime_id, Verdict.ADMITTED, _fits(request, sums), (), sums, kept)
    free = [resident for resident in others if resident.runtime_id not in kept]
    evict = _choose(eviction_order(free), sums)
    if evict is not None:
        message = f"{_fits(request, sums)} once {_names(evict)} {'is' if len(evict) == 1 else 'are'} stopped"
        return Plan(request.runtime_id, Verdict.ADMITTED, message, evict, sums, kept)
    verdict = _blame(others, kept, sums)
    owners = {r.runtime_id: f" of {r.owner}" for r in others if r.owner}
    return Plan(request.runtime_id, verdict, _refusal(request, verdict, sums, kept, owners), (), sums, kept)


def best_plan(plans: Sequence[Plan]) -> Plan:
    """Of plans for one runtime on different cards: the first that evicts least; else the mildest refusal."""
    allowed = [plan for plan in plans if plan.allowed]
    if allowed:
        return min(allowed, key=lambda plan: len(plan.evict))
    return min(plans, key=lambda plan: _SEVERITY.index(plan.verdict))


_SEVERITY = (
    Verdict.BUSY,
    Verdict.KEEP_WARM,
    Verdict.AUTHORITY,
    Verdict.IMPOSSIBLE,
    Verdict.UNKNOWN_SIZE,
    Verdict.NO_DEVICE,
    Verdict.ADMITTED,
)


def _sum(pool: Pool, request: Resident, others: Iterable[Resident]) -> PoolPlan:
    loaded = sum(resident.needs.get(pool.name, 0) for resident in others)
    requested = request.needs.get(pool.name, 0)
    # A pool that the runtime does not touch cannot stand in its way, however full others have made it.
    projected = max(pool.used_mib or 0, loaded) + requested if requested else 0
    return PoolPlan(pool, loaded, requested, projected)


def _choose(candidates: Sequence[Resident], sums: Sequence[PoolPlan]) -> tuple[str, ...] | None:
    """The shortest prefix of useful candidates that makes everything fit; None when not even all of them do."""
    over = {one.pool.name: one.over_mib for one in sums if one.over_mib}
    chosen: list[str] = []
    for candidate in candidates:
        if not over:
            break
        if not any(candidate.needs.get(name, 0) for name in over):
            continue  # it would free nothing where room is missing
        chosen.append(candidate.runtime_id)
        over = {name: mib - candidate.needs.get(name, 0) for name, mib in over.items()}
        over = {name: mib for name, mib in over.items() if mib > 0}
    return tuple(chosen) if not over else None


_PASSING = (
    Protected.ACTIVE,
    Protected.STARTING,
    Protected.RESTARTING,
    Protected.RESIDENCY,
    Protected.PREFERRED,
)
"""What ends by itself."""

_BLAME: tuple[tuple[Verdict, frozenset[Protected]], ...] = (
    (Verdict.BUSY, frozenset(_PASSING)),
    (Verdict.KEEP_WARM, frozenset({Protected.KEEP_WARM})),
    (Verdict.AUTHORITY, frozenset({Protected.AUTHORITY})),
)
"""What would have to end for the request to fit, mildest first."""


def _blame(others: Sequence[Resident], kept: Mapping[str, Protected], sums: Sequence[PoolPlan]) -> Verdict:
    lifted: frozenset[Protected] = frozenset()
    for verdict, reasons in _BLAME:
        lifted |= reasons
        gone = [r for r in others if r.runtime_id not in kept or kept[r.runtime_id] in lifted]
        if _choose(eviction_order(gone), sums) is not None:
            return verdict
    return Verdict.IMPOSSIBLE


def _fits(request: Resident, sums: Sequence[PoolPlan]) -> str:
    needs = ", ".join(f"{_gib(one.requested_mib)} of {one.pool.title}" for one in sums if one.requested_mib)
    return f"{request.runtime_id} needs {needs}; it fits" if needs else f"{request.runtime_id} fits"


def _refusal(
    request: Resident,
    verdict: Verdict,
    sums: Sequence[PoolPlan],
    kept: Mapping[str, Protected],
    owners: Mapping[str, str],
) -> str:
    short = next(one for one in sums if one.over_mib)
    free = short.pool.budget_mib - (short.projected_mib - short.requested_mib)
    text = (
        f"{request.runtime_id} needs {_gib(short.requested_mib)} of {short.pool.title}, {_gib(max(0, free))} are free"
    )
    blockers = {
        Verdict.BUSY: _PASSING,
        Verdict.KEEP_WARM: (Protected.KEEP_WARM,),
        Verdict.AUTHORITY: (Protected.AUTHORITY,),
    }.get(verdict, ())
    names = [
        f"{runtime_id} ({why}{owners.get(runtime_id, '')})"
        for runtime_id, why in sorted(kept.items())
        if why in blockers
    ]
    if verdict is Verdict.IMPOSSIBLE:
        return f"{text}, and stopping everything would not be enough: the budget is {_gib(short.pool.budget_mib)}"
    return f"{text}; {_names(names)} {'stays' if len(names) == 1 else 'stay'}"


def _names(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib} MiB"
