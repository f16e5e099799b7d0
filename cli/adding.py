"""Carries out the addition of a model: engine build and weights through the daemon, config, reload, start.

Shared by `llmgw model add` and `llmgw up`. Every step may be repeated: killed anywhere, the same command finishes it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from cli.addition import Addition, Request, apply_addition, plan_addition
from cli.progress import ProgressView
from cli.runtimes import explained, failure
from core.api import RuntimeStatus
from core.client import DaemonClient
from core.config.load import Loaded, has_made_keys, load_config, read_environment_file
from core.config.schema import Config
from core.config.write import Document, edit_config
from core.errors import ConflictError
from core.paths import Layout
from core.runtime import RuntimeState
from core.tasks import Backoff
from engines.registry import get_adapter

_WRITE_TRIES = 12


@dataclass(frozen=True, slots=True)
class Place:
    """Where the config is and what its `${NAME}` may refer to."""

    layout: Layout
    environ: dict[str, str]

    def load(self) -> Loaded:
        return load_config(self.layout, self.environ)

    def edit(self, change: Callable[[Document], None]) -> Loaded:
        """As `edit_config`."""
        made = has_made_keys(self.layout)
        return edit_config(self.layout.config, self.variables, change, has_made_keys=made)

    @property
    def variables(self) -> dict[str, str]:
        return {**read_environment_file(self.layout.environment), **self.environ}


async def install_for(daemon: DaemonClient, request: Request) -> None:
    """Bring the engine's build and the weights onto this machine, both at once, with progress."""
    with ProgressView() as view:
        work: list[Coroutine[None, None, str]] = []
        if get_adapter(request.engine).needs_build:
            work.append(view.follow(f"engine {request.engine}", daemon.install_engine(request.engine)))
        if request.source:
            work.append(view.follow("weights", daemon.fetch_weights(request.source)))
        await together(work)


async def write_addition(place: Place, request: Request) -> Addition:
    """Add the model to the config file, if it is not there."""
    return await write_planned(place, lambda config: plan_addition(request, config))


async def fetch_for(daemon: DaemonClient, source: str) -> None:
    """Bring weights alone onto this machine, with progress."""
    with ProgressView() as view:
        await view.follow("weights", daemon.fetch_weights(source))


async def write_planned(place: Place, plan: Callable[[Config], Addition]) -> Addition:
    """Write what is planned for the config file. The plan is made from the file as it is now.

    Another command that writes it at the same moment is waited for, a little.
    """
    backoff = Backoff(0.02, 0.5)
    for _ in range(_WRITE_TRIES - 1):
        try:
            return _write_once(place, plan)
        except ConflictError as error:
            if error.code != "locked":
                raise
        await asyncio.sleep(backoff.next_s())
    return _write_once(place, plan)


def _write_once(place: Place, plan: Callable[[Config], Addition]) -> Addition:
    planned: list[Addition] = []

    def change(document: Document) -> None:
        # Planned under the writer's lock: what another command added a moment ago is there already.
        planned.append(plan(place.load().config))
        if planned[-1].changes:
            apply_addition(document, planned[-1])

    place.edit(change)
    return planned[-1]


async def add_model(daemon: DaemonClient, place: Place, request: Request) -> tuple[Addition, RuntimeStatus]:
    """All of it, in the order in which an interruption leaves nothing half-configured.

    Raises: whatever a step raises; RuntimeFailed with the engine's last lines when it does not come up.
    """
    plan_addition(request, place.load().config)  # a conflict is told before anything is downloaded
    await install_for(daemon, request)
    addition = await write_addition(place, request)
    await daemon.reload()
    return addition, await start(daemon, addition.runtime_id)


async def start(daemon: DaemonClient, runtime_id: str) -> RuntimeStatus:
    """Start and wait until it serves. Raises: RuntimeFailed."""
    async with explained(daemon, runtime_id):
        status = await daemon.start_runtime(runtime_id)
    if status.state == RuntimeState.FAILED:
        raise failure(status)
    return status


async def together(work: list[Coroutine[None, None, str]]) -> list[str]:
    """Run all at once; the first failure cancels the others and leaves as itself, not as a group."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
