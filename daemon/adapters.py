"""LoRA adapters that engines load while they serve: one shelf (`daemon.adapter_shelf`) for each life of an engine.

The local API asks here for an adapter that a request needs; the route table and the node's state ask what there is.
"""

from collections.abc import Awaitable, Callable

from core.errors import ConflictError
from core.log import get_logger
from core.runtime import RuntimeState
from daemon.activity import Activity
from daemon.adapter_shelf import Around, RuntimeAway, Shelf
from daemon.publisher import RoutePublisher
from daemon.runtimes.controller import RuntimeController
from daemon.runtimes.prepare import AdapterUnknown, Preparer
from daemon.runtimes.spec import declared_adapters
from daemon.runtimes.surround import Surround


class NoAdapters(ConflictError):
    """An engine that loads none while it serves."""

    code = "adapter_not_possible"


class AdapterDesk:
    """The shelves of all runtimes of a node."""

    def __init__(
        self,
        shared: Surround,
        activity: Activity,
        publisher: RoutePublisher,
        publish: Callable[[], Awaitable[None]],
        preparer: Callable[[], Preparer],
    ) -> None:
        log, now_s = get_logger("daemon.adapters"), shared.clock.monotonic_s()
        self._around = Around(
            shared.http, shared.clock, log, shared.spawn, activity, publisher, publish, preparer, now_s
        )
        self._shelves: dict[str, Shelf] = {}

    def usable(self, controller: RuntimeController) -> frozenset[str]:
        """Adapters that requests for the runtime may be sent for. Notices that its engine lives anew."""
        shelf = self._find(controller)
        return shelf.usable if shelf is not None else frozenset()

    def failures(self, controller: RuntimeController) -> dict[str, str]:
        """Adapters that the runtime's engine did not take, and why."""
        shelf = self._find(controller)
        return shelf.failures if shelf is not None else {}

    async def ensure(self, controller: RuntimeController, name: str) -> None:
        """Return when the runtime's engine has the adapter, and the route table says so.

        Raises: AdapterUnknown, NoAdapters, RuntimeAway, AdapterFailed, WeightsMissing.
        """
        runtime_id = controller.runtime_id
        if name not in declared_adapters(self._around.preparer().config, runtime_id):
            raise AdapterUnknown(f"no model of runtime {runtime_id} is an adapter {name}", hint="llmgw model list")
        if controller.state is not RuntimeState.RUNNING:
            raise RuntimeAway(f"runtime {runtime_id} is {controller.state}")
        shelf = self._find(controller)
        if shelf is None:
            raise NoAdapters(f"the engine of {runtime_id} loads no adapters while it serves")
        await shelf.ensure(name)

    def forget_failures(self) -> None:
        """Of all: the config is another one now."""
        for shelf in self._shelves.values():
            shelf.forget_failures()

    def _find(self, controller: RuntimeController) -> Shelf | None:
        """The shelf of the engine's present life."""
        runtime_id, probe = controller.runtime_id, controller.probe
        is_up = controller.state is RuntimeState.RUNNING
        shelf = self._shelves.get(runtime_id)
        if shelf is not None and not (is_up and shelf.life == controller.since_s):
            del self._shelves[runtime_id]
            shelf.close()
            shelf = None
        if shelf is None and is_up and probe is not None and probe.spec.adapter_slots:
            api = probe.adapter.lora_api
            if api is not None:
                shelf = self._shelves[runtime_id] = Shelf(runtime_id, controller.since_s, probe, api, self._around)
                shelf.work()
        return shelf
