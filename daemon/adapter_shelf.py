"""The LoRA adapters of one engine, in one of its lives: which it holds, who waits for which, the calls that change it.

The gateway asks for an adapter that the route table does not show as loaded; many asks for one are one load. Before
an adapter is unloaded the table says that it is gone, and every gateway worker must have seen that table and have
nothing under way for it (`core.activity`): so none goes while it is used. What an engine holds is read from the engine
itself at the beginning of each of its lives, also of one that a former daemon began.

A load that fails concerns the requests for that adapter alone: they hear why, and for a while nobody tries again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from core.activity import FORGET_AFTER_S
from core.clock import Clock
from core.errors import BugError, DependencyError, LlmgwError, TimedOutError, UnavailableError
from core.http.client import HttpClient, Reply
from core.log import EventLogger
from daemon.activity import Activity
from daemon.publisher import RoutePublisher
from daemon.runtimes.adapters import Held, Load, Unload, Wait, next_step, pause_s
from daemon.runtimes.health import Probe
from daemon.runtimes.prepare import Preparer
from daemon.runtimes.spec import declared_adapters
from engines.adapters.lora import read_lora
from engines.lora_api import LoraApi, load_body, read_loaded, read_refusal, unload_body

_LOAD_S = 300.0
_CALL_S = 30.0
_LOOK_S = 0.1
"""Reports of the gateway come at most this often."""
_READ_AGAIN_S = 1.0
_SHORT_PAUSE_S = 1.0
"""After a failure that is the connection's, and not the adapter's."""


class AdapterFailed(DependencyError):
    """The engine does not take the adapter."""

    code = "adapter_failed"


class RuntimeAway(UnavailableError):
    """The engine that should load it does not run."""

    code = "adapter_runtime_away"


@dataclass(frozen=True, slots=True)
class Around:
    """What all shelves share."""

    http: HttpClient
    clock: Clock
    log: EventLogger
    spawn: Callable[[Coroutine[None, None, None]], asyncio.Task[None]]
    activity: Activity
    publisher: RoutePublisher
    publish: Callable[[], Awaitable[None]]
    preparer: Callable[[], Preparer]
    began_s: float
    """When this daemon did; monotonic."""


@dataclass(slots=True)
class _Want:
    """An adapter that is waited for."""

    since_s: float
    futures: set[asyncio.Future[None]] = field(default_factory=set)


@dataclass(slots=True)
class _Failure:
    """The last load of an adapter went wrong."""

    error: LlmgwError
    until_s: float
    times: int


class Shelf:
    """The adapters of one engine in one of its lives."""

    def __init__(self, runtime_id: str, life: float, probe: Probe, api: LoraApi, around: Around) -> None:
        self.life = life
        self._runtime_id = runtime_id
        self._probe = probe
        self._api = api
        self._around = around
        self._log = around.log.bind(runtime=runtime_id)
        self._held: dict[str, float] | None = None
        """Name -> since when, as far as we know; None: it is to be read."""
        self._leaving = ""
        self._wants: dict[str, _Want] = {}
        self._failures: dict[str, _Failure] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def usable(self) -> frozenset[str]:
        """What requests may be sent for."""
        return frozenset(self._held or ()) - {self._leaving}

    @property
    def failures(self) -> dict[str, str]:
        """Adapters whose last load went wrong, and why."""
        return {name: failure.error.message for name, failure in self._failures.items()}

    async def ensure(self, name: str) -> None:
        """Return when the adapter is there. Raises: AdapterFailed, RuntimeAway, WeightsMissing."""
        failure = self._failures.get(name)
        if failure is not None and self._around.clock.monotonic_s() < failure.until_s:
            raise failure.error
        if name in self.usable:
            return
        future = asyncio.get_running_loop().create_future()
        want = self._wants.setdefault(name, _Want(self._around.clock.monotonic_s()))
        want.futures.add(future)
        self.work()
        try:
            await future
        finally:
            want.futures.discard(future)
            if not want.futures and self._wants.get(name) is want:
                del self._wants[name]

    def work(self) -> None:
        """Do what there is to do, unless that is being done."""
        if self._task is None or self._task.done():
            self._task = self._around.spawn(self._work())

    def close(self) -> None:
        """This life of the engine is over."""
        if self._task is not None:
            self._task.cancel()
        for name in list(self._wants):
            self._settle(name, RuntimeAway(f"the engine of {self._runtime_id} does not run now"))

    def forget_failures(self) -> None:
        """Something was changed that may mend them."""
        self._failures.clear()

    # One task for each shelf: its calls never overlap

    async def _work(self) -> None:
        """A bug in here must end neither the daemon nor the runtime."""
        try:
            await self._serve_wants()
        except Exception as error:  # noqa: BLE001 - the boundary of one task
            self._log.error("adapter_work_broke", error=repr(error))
            for name in list(self._wants):
                self._settle(name, BugError(f"runtime {self._runtime_id}: {error!r}"))

    async def _serve_wants(self) -> None:
        await self._know()
        while self._wants:
            name, want = next(iter(self._wants.items()))
            if name in self.usable:
                self._settle(name)
                continue
            try:
                await self._step(name, want)
            except LlmgwError as error:
                self._fail(name, error)
            await self._know()

    async def _know(self) -> None:
        """Until it is known what the engine holds."""
        while self._held is None:
            await self._read()

    async def _step(self, name: str, want: _Want) -> None:
        """Raises: AdapterFailed, RuntimeAway, AdapterUnknown, WeightsMissing, SourceInvalid."""
        now_s = self._around.clock.monotonic_s()
        step = next_step(self._describe(now_s), self._probe.spec.adapter_slots, now_s - want.since_s)
        if isinstance(step, Unload) and not self._may_unload(now_s):
            step = Wait()
        if isinstance(step, Wait):
            await asyncio.sleep(_LOOK_S)
            return
        # What is not here makes nothing leave.
        path = self._around.preparer().find_adapter(self._runtime_id, name)
        if isinstance(step, Load):
            await self._load(name, path)
        elif isinstance(step, Unload) and await self._clear(step):
            await self._unload(step.name)

    def _describe(self, now_s: float) -> list[Held]:
        declared = declared_adapters(self._around.preparer().config, self._runtime_id)
        described = []
        for name, since_s in (self._held or {}).items():
            use = self._around.activity.adapter_use(self._runtime_id, name, now_s)
            described.append(Held(name, now_s - since_s, use.in_use, use.idle_s, name in declared))
        return described

    def _may_unload(self, now_s: float) -> bool:
        """A daemon that has just begun has not heard of all workers yet."""
        return now_s - self._around.began_s >= FORGET_AFTER_S

    async def _clear(self, step: Unload) -> bool:
        """Close the adapter to new requests; whether none is under way then. Otherwise it is open again."""
        self._leaving = step.name
        is_clear = False
        try:
            await self._around.publish()
            is_clear = await self._wait_unused(step)
        finally:
            if not is_clear:
                self._leaving = ""
                await self._around.publish()
        return is_clear

    async def _wait_unused(self, step: Unload) -> bool:
        """Until every worker dispatches without the adapter and has nothing under way for it; False: it is kept."""
        activity, publisher = self._around.activity, self._around.publisher
        version = publisher.version
        while self._wants:
            now_s = self._around.clock.monotonic_s()
            if activity.all_have_seen(publisher.epoch, version, now_s):
                if not activity.adapter_use(self._runtime_id, step.name, now_s).in_use:
                    return True
                others = [one for one in self._describe(now_s) if one.name != step.name]
                if not step.drains or any(one.is_idle for one in others):
                    return False
            await asyncio.sleep(_LOOK_S / 2)
        return False

    async def _unload(self, name: str) -> None:
        """Raises: AdapterFailed."""
        reply = await self._call(self._api.unload, unload_body(name), _CALL_S)
        self._leaving = ""
        if reply.status not in (200, 404):
            self._held = None
            words = read_refusal(reply.status, reply.body)
            raise AdapterFailed(f"the engine of {self._runtime_id} does not unload the adapter {name}: {words}")
        if self._held is not None:
            self._held.pop(name, None)
        self._log.info("adapter_unloaded", adapter=name)

    async def _load(self, name: str, path: Path) -> None:
        """Raises: AdapterFailed, RuntimeAway."""
        began_s = self._around.clock.monotonic_s()
        reply = await self._call(self._api.load, load_body(name, path), _LOAD_S)
        now_s = self._around.clock.monotonic_s()
        if reply.status != 200:
            # It may have it all the same: an earlier answer was lost.
            await self._read()
            if name not in (self._held or {}):
                raise self._refused(name, reply)
        elif self._held is not None:
            self._held[name] = now_s
        self._failures.pop(name, None)
        self._log.info("adapter_loaded", adapter=name, took_s=round(now_s - began_s, 3))
        await self._around.publish()
        self._settle(name)

    async def _read(self) -> None:
        """Ask the engine what it holds, if it answers now."""
        reply = None
        try:
            reply = await self._around.http.fetch(
                "GET", self._probe.url(self._api.models), headers=self._probe.headers(), timeout_s=_CALL_S
            )
        except (UnavailableError, TimedOutError, DependencyError) as error:
            self._log.debug("adapters_unread", error=error.message)
        fixed = [name for name, _ in read_lora(self._probe.spec)]
        names = read_loaded(reply.body, fixed) if reply is not None and reply.status == 200 else None
        if names is None:
            self._held = None
            await asyncio.sleep(_READ_AGAIN_S)
            return
        now_s, before = self._around.clock.monotonic_s(), self._held or {}
        self._held = {name: before.get(name, now_s) for name in names}
        await self._around.publish()

    async def _call(self, path: str, body: bytes, timeout_s: float) -> Reply:
        """Raises: AdapterFailed when there is no answer; then it is not known what the engine holds."""
        headers = {"Content-Type": "application/json", **self._probe.headers()}
        try:
            return await self._around.http.fetch(
                "POST", self._probe.url(path), headers=headers, body=body, timeout_s=timeout_s
            )
        except (UnavailableError, TimedOutError, DependencyError) as error:
            self._held, self._leaving = None, ""
            raise RuntimeAway(f"the engine of {self._runtime_id} does not answer: {error.message}") from error

    # Small things

    def _refused(self, name: str, reply: Reply) -> AdapterFailed:
        words = read_refusal(reply.status, reply.body)
        setting = f"runtimes.{self._runtime_id}.options.maxLoraRank"
        hint = setting if "rank" in words.lower() else f"llmgw logs {self._runtime_id}"
        return AdapterFailed(f"the engine of {self._runtime_id} does not take the adapter {name}: {words}", hint=hint)

    def _fail(self, name: str, error: LlmgwError) -> None:
        """Tell who waits, and let the adapter rest for a while."""
        before = self._failures.get(name)
        times = before.times + 1 if before is not None else 1
        rest_s = pause_s(times) if isinstance(error, AdapterFailed) else _SHORT_PAUSE_S
        self._failures[name] = _Failure(error, self._around.clock.monotonic_s() + rest_s, times)
        self._log.warning("adapter_failed", adapter=name, code=error.code, error=error.message, rests_s=rest_s)
        self._settle(name, error)

    def _settle(self, name: str, error: LlmgwError | None = None) -> None:
        want = self._wants.pop(name, None)
        for future in want.futures if want is not None else ():
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
