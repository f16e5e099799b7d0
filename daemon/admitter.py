"""Gathers what admission decides by: the node's memory, its runtimes, their load. The decision itself is pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.clock import Clock
from core.config.schema import Config, RuntimePolicy
from core.errors import LlmgwError, RefusedError
from core.runtime import RuntimeState
from daemon.activity import Activity
from daemon.intents import Intents
from daemon.reconcile import Action, Start
from daemon.runtimes.admission import Plan, Verdict, plan_admission
from daemon.runtimes.controller import RuntimeController
from daemon.runtimes.estimates import Estimates, estimate_mib
from daemon.runtimes.eviction import Asking
from daemon.runtimes.memory import HOST, Budget, Pool, Resident
from daemon.runtimes.prepare import Preparer
from daemon.runtimes.spec import spec_hash
from engines.registry import get_adapter

_NOT_LOADED = frozenset({RuntimeState.STOPPED, RuntimeState.QUEUED, RuntimeState.FAILED})
_FAIR_WAIT_S = 5.0
"""A start that waited so long may drain a busy runtime whose residency is over, or it would starve."""

MemoryReader = Callable[[], tuple[int | None, int | None]]
"""Total and available MiB of the host."""


class AdmissionRefused(RefusedError):
    """There is no room, and waiting will not make any (429 only where it may)."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.message, hint=f"llmgw runtime-plan {plan.runtime_id}", code=plan.verdict.value)
        self.http_status = 429 if plan.verdict.is_retryable else 503


@dataclass(slots=True)
class Admitter:
    """Makes plans for one node."""

    clock: Clock
    activity: Activity
    estimates: Estimates
    read_memory: MemoryReader

    def admit(
        self,
        actions: Sequence[Action],
        controllers: Mapping[str, RuntimeController],
        preparer: Preparer,
        intents: Intents,
    ) -> list[Action]:
        """The actions without the starts that there is no room for; those are queued, or refused.

        One start of a pass may evict: the others are judged anew when its victims are gone.
        """
        kept: list[Action] = [action for action in actions if not isinstance(action, Start)]
        coming: set[str] = set()
        makes_room = False
        for start in self._in_order(actions, preparer.config, intents):
            runtime_id, controller = start.runtime_id, controllers[start.runtime_id]
            soft = runtime_id not in intents.requested and not preparer.config.runtimes[runtime_id].keep_warm
            waited_s = controller.queued_s
            plan = self.plan(runtime_id, controllers, preparer, waited_s=waited_s, coming=frozenset(coming), soft=soft)
            if plan.allowed and not plan.evict:
                kept.append(start)
                coming.add(runtime_id)
            elif plan.allowed and (makes_room or self._evict(plan, intents)):
                makes_room = True
                controller.queue(plan.message)
            else:
                self._turn_away(controller, plan, preparer.config, intents)
        return kept

    def _in_order(self, actions: Sequence[Action], config: Config, intents: Intents) -> list[Start]:
        """What somebody waits for first, then pins, then what is only preferred; by priority."""
        starts = [action for action in actions if isinstance(action, Start)]

        def key(start: Start) -> tuple[bool, bool, int, str]:
            runtime = config.runtimes[start.runtime_id]
            return (
                start.runtime_id not in intents.requested,
                not runtime.keep_warm,
                -runtime.priority,
                start.runtime_id,
            )

        return sorted(starts, key=key)

    def _evict(self, plan: Plan, intents: Intents) -> bool:
        for victim in plan.evict:
            intents.evict(victim, f"makes room for {plan.runtime_id}")
        return True

    def _turn_away(self, controller: RuntimeController, plan: Plan, config: Config, intents: Intents) -> None:
        """Queue what may fit later; refuse what will not, and what nobody waits for any more."""
        runtime_id = plan.runtime_id
        wait_s = config.runtime_policy.admission_wait_ms / 1000
        is_asked_for = runtime_id in intents.requested
        if is_asked_for and plan.verdict.is_retryable and controller.queued_s < wait_s:
            controller.queue(plan.message)
            return
        intents.requested.pop(runtime_id, None)
        controller.refuse(AdmissionRefused(plan))

    def plan(
        self,
        runtime_id: str,
        controllers: Mapping[str, RuntimeController],
        preparer: Preparer,
        *,
        waited_s: float = 0.0,
        coming: frozenset[str] = frozenset(),
        soft: bool = False,
    ) -> Plan:
        """The plan for loading `runtime_id` now. `coming` are runtimes that this pass has admitted already."""
        policy = preparer.config.runtime_policy
        residents = [self._resident(c, preparer, loaded=c.runtime_id in coming) for c in controllers.values()]
        request = next(r for r in residents if r.runtime_id == runtime_id)
        asking = Asking(
            runtime_id,
            min_residency_s=policy.min_residency_ms / 1000,
            preferred_idle_s=policy.preferred_warm_idle_ms / 1000,
            may_drain=waited_s >= _FAIR_WAIT_S,
            as_preferred=soft,
        )
        pools = self._pools(preparer.config)
        if not pools:
            # A machine that does not tell its memory cannot be protected; refusing everything would be worse.
            return Plan(runtime_id, Verdict.ADMITTED, "the machine's memory cannot be read")
        return plan_admission(request, residents, pools, asking)

    def need_mib(self, runtime_id: str, preparer: Preparer) -> int | None:
        """MiB of host memory that a runtime of the config needs; None: unknown."""
        config = preparer.config
        runtime = config.runtimes[runtime_id]
        try:
            adapter = get_adapter(runtime.engine)
            weights = preparer.find_weights(runtime_id)
        except LlmgwError:
            return 0  # it cannot be started at all; the start itself tells why, in better words than admission
        return estimate_mib(
            configured_gib=runtime.memory_gb,
            measured_mib=self.estimates.measured_mib(runtime_id, spec_hash(config, runtime_id)),
            weights_bytes=weights.stat().st_size if weights is not None else 0,
            overhead_mib=adapter.overhead_mib,
        )

    def _resident(self, controller: RuntimeController, preparer: Preparer, *, loaded: bool) -> Resident:
        runtime_id = controller.runtime_id
        now_s = self.clock.monotonic_s()
        load = self.activity.load(runtime_id, now_s)
        runtime = preparer.config.runtimes.get(runtime_id)
        need = self.need_mib(runtime_id, preparer) if runtime is not None else 0
        authority = controller.record.authority.owner if controller.record else preparer.node
        return Resident(
            runtime_id=runtime_id,
            loaded=loaded or controller.state not in _NOT_LOADED,
            needs={} if need is None else {HOST: need},
            active=load.active,
            waiting=load.waiting,
            keep_warm=bool(runtime and runtime.keep_warm),
            preferred_warm=bool(runtime and runtime.preferred_warm),
            priority=runtime.priority if runtime else 0,
            idle_s=load.idle_s,
            resident_s=now_s - controller.since_s,
            owner="" if authority == preparer.node else authority,
        )

    def _pools(self, config: Config) -> list[Pool]:
        total, available = self.read_memory()
        if total is None:
            return []
        used = None if available is None else total - available
        return [Pool(HOST, _budget(config.runtime_policy).of(total), used, "memory")]


def _budget(policy: RuntimePolicy) -> Budget:
    return Budget(
        policy_budget_mib=None if policy.memory_budget_gb is None else int(policy.memory_budget_gb * 1024),
        max_utilization=policy.max_memory_utilization,
        reserve_mib=int(policy.reserve_memory_gb * 1024),
    )
