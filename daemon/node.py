"""This machine's runtimes as a whole: config, intents and controllers, and the loop that reconciles them.

The local API calls the methods here; they change an intent, wake the loop and wait for what comes of it. The loop
computes `reconcile(wanted, seen)` and applies it. Every change also makes a new version of the route table.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from core.activity import ActivityReport
from core.api import ReloadResult
from core.config.load import Loaded
from core.config.schema import Config
from core.errors import ConfigError, ConflictError, DependencyError, LlmgwError, NotFoundError
from core.files import set_mark
from core.http.client import HttpClient
from core.log import get_logger
from core.runtime import AT_REST, Authority, RuntimeState
from daemon.adapters import AdapterDesk
from daemon.admitter import Admitter
from daemon.adoption import adopt_all, read_records, remove_stray_gates
from daemon.apply import Applier
from daemon.backend_keys import BackendKeys
from daemon.intents import Intents, wanted_of
from daemon.key_store import KeyStore
from daemon.publisher import RoutePublisher
from daemon.reconcile import Seen, Start, Stop, reconcile
from daemon.refusals import (
    RuntimeHeld,
    RuntimeUnknown,
    StopOverruled,
)
from daemon.routes import build_route_table
from daemon.runtimes.admission import Plan
from daemon.runtimes.authority import Action as Act
from daemon.runtimes.authority import Caller, Who, may, require
from daemon.runtimes.controller import RuntimeController, is_settled
from daemon.runtimes.memory_guard import MemoryGuard
from daemon.runtimes.prepare import Preparer
from daemon.runtimes.residency import Stay, idle_runtimes
from daemon.runtimes.spec import served_models
from daemon.runtimes.surround import Surround
from daemon.runtimes.warmup import WarmupCall, plan_warmup, warm_up
from daemon.tracing import describe_tracing
from daemon.views import view_runtimes
from daemon.waits import hindrance, start_ended, start_failed, stop_ended
from engines.registry import get_adapter
from units.backend import BackendLost, UnitBackend, UnitStatus
from units.names import engine_unit_name

_MENDED_BY_FETCHING = frozenset({"engine_build_missing", "weights_missing", "weights_broken"})
_TICK_S = 1.0
_SILENCE_POLL_S = 0.05
_RETRY_S = 2.0


REQUEST = "request"
"""The reason of a start that a client's request asked for, through the gateway."""


@dataclass(slots=True)
class ConfigUse:
    """Which config is in use, and why a newer one is not."""

    loaded: Loaded
    loaded_at: str
    error: str = ""


class Node:
    """The runtimes of one machine. One per daemon; lives on its loop."""

    def __init__(
        self, loaded: Loaded, preparer: Preparer, backend: UnitBackend, http: HttpClient, admitter: Admitter,
        keys: KeyStore,
    ) -> None:  # fmt: skip
        self.config_use = ConfigUse(loaded, _now())
        self.controllers: dict[str, RuntimeController] = {}
        self.preparer = preparer
        self.backend = backend
        self._log = get_logger("daemon.node")
        self.admitter = admitter
        self.keys = keys
        self.backend_keys = BackendKeys(
            preparer.layout.backend_keys, preparer.gateway_gid, get_logger("daemon.backends")
        )
        self._intents = Intents()
        self._applier = Applier(backend, self._log, lambda: self.admitter.read_cards())
        self._wake = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self.publisher = RoutePublisher()
        self._stopped_mark = preparer.layout.state / "serving-stopped"
        self._intents.serving = not self._stopped_mark.exists()
        self._guard = MemoryGuard(
            admitter.read_memory, lambda: self.config_use.loaded.config.runtime_policy.memory_safety
        )
        self._shared = Surround(
            backend=backend,
            http=http,
            log=get_logger("daemon.runtimes"),
            spawn=self._spawn,
            changed=self._changed,
            is_ours=self._is_ours_to_restart,
            stopped_outside=self._intents.hold,
            wait_silent=self._wait_silent,
            clock=admitter.clock,
            guard=self._guard,
            read_cards=lambda: self.admitter.refresh_cards(),
            warmup=self._warmup,
        )
        self.adapters = AdapterDesk(
            self._shared, admitter.activity, self.publisher, self.publish, lambda: self.preparer
        )

    # Life of the program

    async def run(self, adopted: asyncio.Event) -> None:
        """Adopt what runs, set `adopted`, then reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            records = await read_records(self.backend, self.preparer.node, self._log)
            await remove_stray_gates(self.backend, self._log)
            self._intents.recall(records)
            await adopt_all(records, self._controller, self.preparer, self.backend)
            group.create_task(self._watch())
            group.create_task(self._tick())
            group.create_task(self._guard.run())
            adopted.set()
            await self._reconcile_for_ever()

    async def _watch(self) -> None:
        """Hand the service manager's events to the controllers."""
        told: dict[str, Callable[[UnitStatus], None]] = {}
        async for status in self.backend.changes():
            if status.name not in told:
                told = {c.unit_name: c.on_unit for c in self.controllers.values()}
                told |= {c.gate_name: c.on_gate for c in self.controllers.values()}
            if tell := told.get(status.name):
                tell(status)

    async def _reconcile_for_ever(self) -> None:
        told = ""
        while True:
            self._wake.clear()
            try:
                await self._pass()
                told = ""
            except BackendLost as error:
                self._log.warning("service_manager_lost", error=error.message)
                await self._pause()
            except LlmgwError as error:
                if error.message != told:  # a full disk is told once, not with every pass
                    self._log.error("pass_failed", code=error.code, error=error.message)
                told = error.message
                await self._pause()
            await self.publish()
            await self._wake.wait()

    async def _tick(self) -> None:
        """What changes with time alone: queues, idle runtimes, room that other programs gave back."""
        while True:
            await asyncio.sleep(_TICK_S)
            config = self.config_use.loaded.config
            for runtime_id in idle_runtimes(self._stays(config)):
                self._intents.evict(runtime_id, "idle")
                self._wake.set()
            for controller in self.controllers.values():
                if controller.may_try_again:
                    controller.restart_requested = True
                    self._wake.set()
            if any(self._waits_for_room(controller, config) for controller in self.controllers.values()):
                self._wake.set()

    def _stays(self, config: Config) -> Iterator[Stay]:
        now_s = self.admitter.clock.monotonic_s()
        for runtime_id, controller in self.controllers.items():
            runtime = config.runtimes.get(runtime_id)
            if runtime is None or controller.state is not RuntimeState.RUNNING:
                continue
            load = self.admitter.activity.load(runtime_id, now_s)
            running_s = now_s - controller.since_s
            idle_stop_s = runtime.idle_stop_ms / 1000
            ours = self._may_touch(runtime_id)
            yield Stay(runtime_id, runtime.keep_warm, idle_stop_s, load.is_busy, load.idle_s, running_s, ours)

    def _waits_for_room(self, controller: RuntimeController, config: Config) -> bool:
        if controller.state is RuntimeState.QUEUED:
            return True
        runtime = config.runtimes.get(controller.runtime_id)
        return controller.state is RuntimeState.STOPPED and bool(
            runtime and (runtime.keep_warm or runtime.preferred_warm)
        )

    async def _wait_silent(self, runtime_id: str) -> None:
        """Until every gateway worker dispatches by a table without this runtime and none has a request there."""
        await self.publish()
        version = self.publisher.version
        while True:
            now_s = self.admitter.clock.monotonic_s()
            activity = self.admitter.activity
            if (
                activity.all_have_seen(self.publisher.epoch, version, now_s)
                and not activity.load(runtime_id, now_s).under_way
            ):
                return
            await asyncio.sleep(_SILENCE_POLL_S)

    async def _pause(self) -> None:
        """Try again in a while, also when nothing else happens."""
        asyncio.get_running_loop().call_later(_RETRY_S, self._wake.set)

    async def _pass(self) -> None:
        config = self.config_use.loaded.config
        for runtime_id in config.runtimes:
            self._controller(runtime_id)
        # What another node owns is not stopped here, so nothing of ours may wait for its stop.
        self._intents.settle(i for i, c in self.controllers.items() if c.state in AT_REST or not self._may_touch(i))
        actions = reconcile(wanted_of(config, self._intents), self._seen())
        actions = [action for action in actions if self._may_touch(action.runtime_id)]
        actions = self.admitter.admit(actions, self.controllers, self.preparer, self._intents)
        await self._applier.apply(actions, self.controllers, self.preparer)
        for controller in self.controllers.values():
            controller.look_again()
        # By the config of this moment: a newer one may have brought runtimes while the actions were carried out.
        named = self.config_use.loaded.config.runtimes
        for runtime_id, controller in list(self.controllers.items()):
            gone = runtime_id not in named and controller.record is None and is_settled(controller)
            if gone:
                del self.controllers[runtime_id]

    def _may_touch(self, runtime_id: str) -> bool:
        """Whether this node's own mechanisms (keep-warm, eviction, reload, stop-all) may act on a runtime."""
        return may(
            Caller(Who.CONFIG, self.preparer.node),
            Act.RELOAD,
            self._authority(self.controllers.get(runtime_id)),
            this_node=self.preparer.node,
        )

    def _is_ours_to_restart(self, authority: Authority) -> bool:
        here = self.preparer.node
        return may(Caller(Who.CRASH_LOOP, here), Act.RESTART, authority, this_node=here)

    def _authority(self, controller: RuntimeController | None) -> Authority:
        """Whose runtime it is; one that has no unit yet is ours."""
        own = Authority(owner=self.preparer.node)
        return controller.record.authority if controller is not None and controller.record is not None else own

    def _require(self, who: Who, action: Act, controller: RuntimeController) -> None:
        require(
            Caller(who, self.preparer.node),
            action,
            controller.runtime_id,
            self._authority(controller),
            this_node=self.preparer.node,
        )

    # What the local API asks

    def controller(self, runtime_id: str) -> RuntimeController:
        """Raises: RuntimeUnknown."""
        controller = self.controllers.get(runtime_id)
        if controller is None or runtime_id not in self.config_use.loaded.config.runtimes:
            raise RuntimeUnknown(f"there is no runtime {runtime_id}", hint="llmgw runtimes")
        return controller

    async def start(self, runtime_id: str, reason: str, *, wait: bool) -> RuntimeController:
        """Ask for it to run; with `wait`, until it does.

        Raises: RuntimeUnknown, AuthorityRefused, RuntimeDisabled, RuntimeHeld, ServingStopped, RuntimeStartFailed,
            StartOverruled, AdmissionRefused.
        """
        controller = self.controller(runtime_id)
        self._require(Who.CLIENT if reason == REQUEST else Who.OPERATOR, Act.START, controller)
        self._require_wishes(runtime_id)
        if runtime_id in self._intents.held and reason == REQUEST:
            raise RuntimeHeld(
                f"runtime {runtime_id} was stopped by an operator", hint=f"llmgw runtime-start {runtime_id}"
            )
        if controller.needs_operator and reason == REQUEST:
            raise start_failed(controller)
        if controller.state in AT_REST:
            controller.restart_requested = controller.state is RuntimeState.FAILED
            controller.error = None
        self._intents.request(runtime_id, reason)
        self._wake.set()
        if wait:
            await self._wait_running(controller)
        return controller

    async def stop(self, runtime_id: str) -> RuntimeController:
        """Stop it and keep it stopped until an operator starts it.

        Raises: RuntimeUnknown, AuthorityRefused, StopOverruled.
        """
        controller = self.controller(runtime_id)
        self._require(Who.OPERATOR, Act.STOP, controller)
        self._intents.hold(runtime_id)
        controller.restart_requested = False
        self._wake.set()
        await controller.wait_until(lambda c: stop_ended(c, self._intents))
        if controller.state not in AT_REST:
            raise StopOverruled(f"runtime {runtime_id} was started again before it had stopped")
        return controller

    async def restart(self, runtime_id: str) -> RuntimeController:
        """Stop and start it. Raises: as `start`."""
        controller = self.controller(runtime_id)
        self._require(Who.OPERATOR, Act.RESTART, controller)
        self._require_wishes(runtime_id)
        controller.restart_requested = True
        self._intents.request(runtime_id, "operator")
        self._wake.set()
        await self._wait_running(controller)
        return controller

    async def warm_up(self, runtime_id: str) -> float:
        """Let a running engine answer a request of ours; seconds that it took.

        Raises: RuntimeUnknown, AuthorityRefused, ConflictError (it does not run, or its engine has no route to ask),
            WarmupFailed.
        """
        controller = self.controller(runtime_id)
        self._require(Who.OPERATOR, Act.WARM_UP, controller)
        call = self._warmup(runtime_id, always=True)
        if controller.state is not RuntimeState.RUNNING or controller.probe is None:
            raise ConflictError(f"runtime {runtime_id} is {controller.state}", hint=f"llmgw runtime-start {runtime_id}")
        if call is None:
            raise ConflictError(f"the engine of {runtime_id} has no route to warm it up by")
        began_s = self.admitter.clock.monotonic_s()
        await warm_up(call, controller.probe, self._shared.http, controller.deadline_s)
        return self.admitter.clock.monotonic_s() - began_s

    async def _wait_running(self, controller: RuntimeController) -> None:
        await controller.wait_until(lambda c: start_ended(c, self.config_use.loaded.config, self._intents)[0])
        _, error = start_ended(controller, self.config_use.loaded.config, self._intents)
        if error is not None:
            raise error

    def _require_wishes(self, runtime_id: str) -> None:
        """Raises: RuntimeDisabled, ServingStopped: nobody's wish would start it now."""
        if error := hindrance(runtime_id, self.config_use.loaded.config, self._intents):
            raise error

    def plan(self, runtime_id: str) -> Plan:
        """What loading it now would take. Raises: RuntimeUnknown."""
        self.controller(runtime_id)
        return self.admitter.plan(runtime_id, self.controllers, self.preparer, self._intents)

    def plan_config(self, loaded: Loaded) -> ReloadResult:
        """What serving by another config would change; changes nothing."""
        seen = self._seen()
        known = {i: seen.get(i, Seen(RuntimeState.STOPPED)) for i in {*seen, *loaded.config.runtimes}}
        wanted = wanted_of(loaded.config, self._intents)
        actions = [action for action in reconcile(wanted, known) if self._may_touch(action.runtime_id)]
        stops = [a.runtime_id for a in actions if isinstance(a, Stop)]
        return ReloadResult(
            changed=loaded.config != self.config_use.loaded.config,
            started=[a.runtime_id for a in actions if isinstance(a, Start)],
            restarted=[i for i in stops if i in wanted and wanted[i].run],
            stopped=[i for i in stops if i not in wanted or not wanted[i].run],
        )

    def use_config(self, loaded: Loaded, preparer: Preparer) -> ReloadResult:
        """Serve by a new config; what its diff changes is under way when this returns."""
        result = self.plan_config(loaded)
        self.config_use = ConfigUse(loaded, _now())
        self.preparer = preparer
        # Now, and not with the next pass: one that is under way may take long, and what came can be asked for at once.
        for runtime_id in loaded.config.runtimes:
            self._controller(runtime_id)
        for controller in self.controllers.values():
            controller.use_node(preparer.node)
        self.adapters.forget_failures()
        self._wake.set()
        return result

    def refuse_config(self, error: ConfigError | NotFoundError) -> None:
        """The file on disk cannot be used; say so until it can."""
        self.config_use.error = error.message

    def restart_stuck(self, runtime_id: str, reason: str) -> None:
        """The watchdog wants a new life of it. Whoever wanted it to run still does, so nothing else changes."""
        controller = self.controllers[runtime_id]
        controller.restart_requested, controller.restart_reason = True, reason
        self._wake.set()

    def retry_missing(self) -> None:
        """Something was installed: runtimes that failed for want of it may start now."""
        for controller in self.controllers.values():
            if controller.error is not None and controller.error.code in _MENDED_BY_FETCHING:
                controller.restart_requested = True
        self._wake.set()

    @property
    def serving(self) -> bool:
        """False while an operator keeps the whole node stopped."""
        return self._intents.serving

    def set_serving(self, on: bool) -> list[str]:
        """Serve again, or free every engine without touching the config. Returns what is being stopped."""
        set_mark(self._stopped_mark, present=not on)
        self._intents.serve(on)
        self._wake.set()
        return [] if on else [i for i, c in self.controllers.items() if c.state not in AT_REST and self._may_touch(i)]

    def take_report(self, report: ActivityReport) -> None:
        """A gateway worker told what it has under way."""
        self.admitter.activity.take(report, self.admitter.clock.monotonic_s())

    def in_background(self, job: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run something that must outlive the request that asked for it."""
        return self._spawn(job)

    # The route table

    async def publish(self) -> None:
        """Tell the gateway how things stand, if it does not know yet."""
        config = self.config_use.loaded.config
        await self.publisher.publish(
            build_route_table(
                config,
                view_runtimes(config, self.controllers, self.preparer, self._intents.held, self.adapters),
                node=self.preparer.node,
                epoch=self.publisher.epoch,
                version=self.publisher.version,
                serving=self._intents.serving,
                keys=self.keys,
                tracing=describe_tracing(config.tracing, self.preparer.layout),
                backend_keys=self.backend_keys.store(config.backends),
            )
        )

    # Small things

    def _warmup(self, runtime_id: str, *, always: bool = False) -> WarmupCall | None:
        config = self.config_use.loaded.config
        runtime = config.runtimes.get(runtime_id)
        if runtime is None:
            return None
        models = [model for model in config.models if runtime_id in model.runtimes() and not model.adapter]
        if always and not runtime.warmup:
            runtime = msgspec.structs.replace(runtime, warmup=True)
        return plan_warmup(runtime, models, get_adapter(runtime.engine).routes, served_models(config, runtime_id)[0])

    def _controller(self, runtime_id: str) -> RuntimeController:
        if runtime_id not in self.controllers:
            self.controllers[runtime_id] = RuntimeController(runtime_id, engine_unit_name(runtime_id), self._shared)
        return self.controllers[runtime_id]

    def _seen(self) -> dict[str, Seen]:
        return {runtime_id: self._seen_of(controller) for runtime_id, controller in self.controllers.items()}

    def _seen_of(self, controller: RuntimeController) -> Seen:
        return Seen(
            state=controller.state,
            has_unit=controller.record is not None,
            unit_hold=bool(controller.record and controller.record.hold),
            spec_hash=controller.attempted_hash,
            restart=controller.restart_requested,
            restart_reason=controller.restart_reason,
            note_due=_is_note_due(controller),
        )

    def _changed(self) -> None:
        self._wake.set()

    def _spawn(self, job: Coroutine[None, None, None]) -> asyncio.Task[None]:
        if self._group is None:
            raise DependencyError("the node does not run yet")
        return self._group.create_task(job)


def _is_note_due(controller: RuntimeController) -> bool:
    record = controller.record
    return record is not None and (record.leaving or record.failure != controller.given_up)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
