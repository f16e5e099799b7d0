"""Gathers what admission decides by: the node's memory, its runtimes, their load. The decision itself is pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from core.clock import Clock
from core.config.cluster import ClusterNode, NodeResources
from core.config.schema import Config, RuntimePolicy
from core.errors import LlmgwError, RefusedError
from core.hardware import Card
from core.runtime import ENDING, RuntimeState
from daemon.activity import Activity
from daemon.intents import Intents, wanted_runtime
from daemon.reconcile import Action, Start
from daemon.runtimes.admission import Plan, Verdict, best_plan, plan_admission
from daemon.runtimes.controller import RuntimeController
from daemon.runtimes.devices import Devices, choices, find_card, wanted_devices
from daemon.runtimes.estimates import Estimates, estimate_mib
from daemon.runtimes.eviction import Asking
from daemon.runtimes.memory import HOST, Budget, Pool, Resident
from daemon.runtimes.prepare import Preparer
from daemon.runtimes.release import CardReader
from daemon.runtimes.spec import spec_hash
from engines.registry import get_adapter

_NOT_LOADED = frozenset({RuntimeState.STOPPED, RuntimeState.QUEUED, RuntimeState.FAILED})
_COMING_UP = frozenset({RuntimeState.STARTING, RuntimeState.WARMING})
_FAIR_WAIT_S = 5.0
"""A start that waited so long may drain a busy runtime whose residency is over, or it would starve."""

GPU_ENGINES = frozenset({"llamacpp", "vllm", "sglang", "trtllm", "comfyui"})
"""Engines that take a card by default where there is one; the simulated one and commands take none unasked."""

MemoryReader = Callable[[], tuple[int | None, int | None]]
"""Total and available MiB of the host."""


async def _no_cards() -> Sequence[Card]:
    return ()


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
    read_cards: Callable[[], Sequence[Card]] = tuple
    """What the hardware's placement says now; no cards until it is read."""
    are_cards_known: Callable[[], bool] = bool
    """Whether it is read; until then nothing that could want a card is started."""
    refresh_cards: CardReader = _no_cards
    """The same, asked of the driver now."""

    def admit(
        self,
        actions: Sequence[Action],
        controllers: Mapping[str, RuntimeController],
        preparer: Preparer,
        intents: Intents,
    ) -> list[Action]:
        """The actions without the starts that there is no room for; those are queued, or refused.

        One start of a pass may evict: the others are judged anew when its victims are gone. Until then what it needs is
        taken: they go one by one, and who fits where the first was would send it to the end of the line again.
        """
        kept: list[Action] = [action for action in actions if not isinstance(action, Start)]
        coming: set[str] = set()
        makes_room = False
        for start in self._in_order(actions, controllers, preparer.config, intents):
            runtime_id, controller = start.runtime_id, controllers[start.runtime_id]
            soft = runtime_id not in intents.requested and not preparer.config.runtimes[runtime_id].keep_warm
            plan = self.plan(runtime_id, controllers, preparer, intents, coming=frozenset(coming), soft=soft)
            if plan.allowed and not plan.evict:
                kept.append(replace(start, devices=plan.devices))
                coming.add(runtime_id)
            elif plan.allowed and (makes_room or self._evict(plan, intents)):
                makes_room = True
                coming.add(runtime_id)
                controller.queue(plan.message)
            else:
                self._turn_away(controller, plan, preparer.config, intents)
        return kept

    def _in_order(
        self, actions: Sequence[Action], controllers: Mapping[str, RuntimeController], config: Config, intents: Intents
    ) -> list[Start]:
        """What was stopped for a new life first: what it held is its own. Then what somebody waits for, then pins, then
        what is only preferred; by priority, then by how long each has waited."""
        starts = [action for action in actions if isinstance(action, Start)]

        def key(start: Start) -> tuple[bool, bool, bool, int, float, str]:
            runtime = config.runtimes[start.runtime_id]
            return (
                not _comes_back(controllers[start.runtime_id]),
                start.runtime_id not in intents.requested,
                not runtime.keep_warm,
                -runtime.priority,
                -controllers[start.runtime_id].queued_s,
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
        intents: Intents,
        *,
        coming: frozenset[str] = frozenset(),
        soft: bool = False,
    ) -> Plan:
        """The plan for loading `runtime_id` now. `coming` are runtimes that this pass has admitted already."""
        policy = preparer.config.runtime_policy
        residents = [self._resident(c, preparer, intents, coming=c.runtime_id in coming) for c in controllers.values()]
        request = next(r for r in residents if r.runtime_id == runtime_id)
        asking = Asking(
            runtime_id,
            min_residency_s=policy.min_residency_ms / 1000,
            preferred_idle_s=policy.preferred_warm_idle_ms / 1000,
            may_drain=controllers[runtime_id].queued_s >= _FAIR_WAIT_S,
            as_preferred=soft,
        )
        pools = self._pools(preparer)
        if not pools:
            # A machine that does not tell its memory cannot be protected; refusing everything would be worse.
            return Plan(runtime_id, Verdict.ADMITTED, "the machine's memory cannot be read")
        runtime = preparer.config.runtimes[runtime_id]
        if runtime.gpus != 0 and (runtime.gpus or runtime.engine in GPU_ENGINES) and not self.are_cards_known():
            # Started now, it would compute on the CPU without a word, on a machine that may have cards.
            return Plan(runtime_id, Verdict.BUSY, f"{runtime_id} waits until the machine's cards are known")
        wanted = self._devices(runtime_id, preparer)
        if not wanted.wants_any:
            return plan_admission(request, residents, pools, asking)
        plans = [
            replace(
                plan_admission(self._on(request, cards, preparer), residents, pools, asking),
                devices=tuple(card.uuid for card in cards),
            )
            for cards in choices(wanted, self.read_cards())
        ]
        return best_plan(plans) if plans else self._no_device(runtime_id, wanted)

    def _devices(self, runtime_id: str, preparer: Preparer) -> Devices:
        runtime = preparer.config.runtimes[runtime_id]
        return wanted_devices(runtime.gpus, engine_can=runtime.engine in GPU_ENGINES, cards=self.read_cards())

    def _on(self, request: Resident, cards: Sequence[Card], preparer: Preparer) -> Resident:
        """The same runtime with what it takes of these cards."""
        return replace(request, needs={**request.needs, **self._card_needs(request.runtime_id, cards, preparer)})

    def _card_needs(self, runtime_id: str, cards: Sequence[Card], preparer: Preparer) -> dict[str, int]:
        """MiB of each card, evenly; a card that computes in the machine's memory asks nothing more."""
        runtime = preparer.config.runtimes.get(runtime_id)
        if runtime is None or not cards:
            return {}
        if runtime.gpu_memory_gb is not None:
            total = int(runtime.gpu_memory_gb * 1024)
        else:
            measured = self.estimates.measured_gpu_mib(runtime_id, spec_hash(preparer.config, runtime_id))
            total = measured or self.need_mib(runtime_id, preparer) or 0
        return {card.uuid: -(-total // len(cards)) for card in cards if not card.unified}

    def _no_device(self, runtime_id: str, wanted: Devices) -> Plan:
        known = len([card for card in self.read_cards() if card.placeable])
        names = " ".join(wanted.names) or f"{wanted.count} cards"
        message = f"{runtime_id} is to compute on {names}; {known} may be used"
        return Plan(runtime_id, Verdict.NO_DEVICE, f"{message} (llmgw hardware says why)")

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

    def _resident(
        self, controller: RuntimeController, preparer: Preparer, intents: Intents, *, coming: bool
    ) -> Resident:
        runtime_id = controller.runtime_id
        now_s = self.clock.monotonic_s()
        load = self.activity.load(runtime_id, now_s)
        runtime = preparer.config.runtimes.get(runtime_id)
        need = self.need_mib(runtime_id, preparer) if runtime is not None else 0
        held = [find_card(uuid, self.read_cards()) for uuid in (controller.record.devices if controller.record else ())]
        cards = [card for card in held if card is not None]
        authority = controller.record.authority.owner if controller.record else preparer.node
        restarting = controller.state in ENDING and wanted_runtime(preparer.config, intents, runtime_id).run
        return Resident(
            runtime_id=runtime_id,
            loaded=coming or controller.state not in _NOT_LOADED,
            needs={} if need is None else {HOST: need, **self._card_needs(runtime_id, cards, preparer)},
            active=load.active,
            waiting=load.waiting,
            keep_warm=bool(runtime and runtime.keep_warm),
            preferred_warm=bool(runtime and runtime.preferred_warm),
            priority=runtime.priority if runtime else 0,
            idle_s=load.idle_s,
            resident_s=now_s - controller.since_s,
            starting=coming or (controller.state in _COMING_UP and runtime_id in intents.requested),
            restarting=restarting,
            leaving=_is_leaving(controller) and not restarting,
            owner="" if authority == preparer.node else authority,
        )

    def _pools(self, preparer: Preparer) -> list[Pool]:
        total, available = self.read_memory()
        if total is None:
            return []
        used = None if available is None else total - available
        config = preparer.config
        here = config.cluster.nodes.get(preparer.node, ClusterNode())
        host = Pool(HOST, budget_of(config.runtime_policy, here.resources).of(total), used, "memory")
        return [host, *(_card_pool(card) for card in self.read_cards() if not card.unified)]


def _is_leaving(controller: RuntimeController) -> bool:
    """Whether it is being stopped, and not for a new life."""
    record = controller.record
    return controller.state in ENDING and record is not None and (record.leaving or record.hold)


def _comes_back(controller: RuntimeController) -> bool:
    """Whether it was stopped for a new life that nobody has tried to begin: its unit file says nothing of an end."""
    record = controller.record
    if record is None or controller.state is not RuntimeState.STOPPED or controller.error is not None:
        return False
    return not (record.leaving or record.hold or record.failure)


def _card_pool(card: Card) -> Pool:
    label = f"GPU {card.index}" if card.index is not None else card.uuid
    return Pool(card.uuid, card.memory_total_mib or 0, card.memory_used_mib, label)


def budget_of(policy: RuntimePolicy, resources: NodeResources) -> Budget:
    """What the config says of the host's memory: each thing that is said of this node goes before the policy's."""
    return Budget(
        node_budget_mib=_mib(resources.memory_budget_gb),
        policy_budget_mib=_mib(policy.memory_budget_gb),
        max_utilization=resources.max_memory_utilization or policy.max_memory_utilization,
        reserve_mib=int((resources.reserve_memory_gb or policy.reserve_memory_gb) * 1024),
        declared_mib=_mib(resources.memory_gb),
    )


def _mib(gib: float | None) -> int | None:
    return None if gib is None else int(gib * 1024)
