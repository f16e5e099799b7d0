"""`llmgw runtimes` and `runtime-start|stop|restart`: the engines that serve on this node."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import click

from cli.completion import runtimes_here
from cli.output import say, show_json, show_table
from cli.session import Session, pass_session, shared_options
from cli.status import read_state
from cli.views import RUNTIME_COLUMNS, find_runtime, runtime_details, runtime_row
from core.api import RuntimeStatus
from core.client import DaemonClient
from core.errors import DependencyError, LlmgwError, NotFoundError
from core.runtime import RuntimeState


class RuntimeFailed(DependencyError):
    """The engine was asked to run and did not."""

    code = "runtime_failed"


@click.command(short_help="List the runtimes, or show one.")
@click.argument("runtime_id", metavar="[ID]", required=False, shell_complete=runtimes_here)
@shared_options
@pass_session
def runtimes(session: Session, runtime_id: str | None) -> None:
    """List the runtimes, or show one with everything that is known of it."""
    state = asyncio.run(read_state(session))
    chosen = list(state.runtimes) if runtime_id is None else [_named(state.runtimes, runtime_id)]
    if session.json:
        show_json({"runtimes": chosen})
    elif runtime_id is not None:
        for line in runtime_details(chosen[0], datetime.now(UTC)):
            say(line)
    else:
        now = datetime.now(UTC)
        show_table(RUNTIME_COLUMNS, [runtime_row(runtime, now) for runtime in chosen])


def _named(known: list[RuntimeStatus], runtime_id: str) -> RuntimeStatus:
    found = find_runtime(known, runtime_id)
    if found is None:
        names = ", ".join(sorted(runtime.id for runtime in known)) or "none"
        raise NotFoundError(
            f"there is no runtime '{runtime_id}'; there are: {names}", hint="llmgw runtimes", code="runtime_unknown"
        )
    return found


@click.command("runtime-start", short_help="Start a runtime.")
@click.argument("runtime_id", metavar="ID", shell_complete=runtimes_here)
@click.option("--no-wait", is_flag=True, help="Return as soon as the start is under way.")
@shared_options
@pass_session
def runtime_start(session: Session, runtime_id: str, no_wait: bool) -> None:
    """Start a runtime and wait until it serves; lifts an operator's earlier stop."""

    async def start() -> RuntimeStatus:
        async with session.daemon() as daemon, explained(daemon, runtime_id):
            return await daemon.start_runtime(runtime_id, wait=not no_wait)

    _report(session, asyncio.run(start()))


@click.command("runtime-stop", short_help="Stop a runtime.")
@click.argument("runtime_id", metavar="ID", shell_complete=runtimes_here)
@shared_options
@pass_session
def runtime_stop(session: Session, runtime_id: str) -> None:
    """Stop a runtime. It stays stopped until `runtime-start`, whatever asks for it."""

    async def stop() -> RuntimeStatus:
        async with session.daemon() as daemon:
            return await daemon.stop_runtime(runtime_id)

    _report(session, asyncio.run(stop()))


@click.command("runtime-restart", short_help="Restart a runtime.")
@click.argument("runtime_id", metavar="ID", shell_complete=runtimes_here)
@shared_options
@pass_session
def runtime_restart(session: Session, runtime_id: str) -> None:
    """Stop a runtime and start it again, with what the config says now."""

    async def restart() -> RuntimeStatus:
        async with session.daemon() as daemon, explained(daemon, runtime_id):
            return await daemon.restart_runtime(runtime_id)

    _report(session, asyncio.run(restart()))


def _report(session: Session, runtime: RuntimeStatus) -> None:
    """Show where the runtime ended up. Raises: RuntimeFailed, with the engine's last lines, when that is `failed`."""
    if runtime.state == RuntimeState.FAILED:
        raise failure(runtime)
    if session.json:
        show_json(runtime)
    else:
        say(f"{runtime.id}: {runtime.state}" + (f", {runtime.reason}" if runtime.reason else ""))


def failure(runtime: RuntimeStatus) -> RuntimeFailed:
    """Why a runtime does not run, in the engine's own words."""
    words = f"runtime '{runtime.id}' failed: {runtime.reason or 'no reason given'}"
    return RuntimeFailed(words + last_lines(runtime), hint=f"llmgw logs {runtime.id}")


@contextlib.asynccontextmanager
async def explained(daemon: DaemonClient, runtime_id: str) -> AsyncIterator[None]:
    """Add the engine's last lines to the error of a start that failed: they are the reason that a person needs."""
    try:
        yield
    except LlmgwError as error:
        with contextlib.suppress(LlmgwError):
            runtime = find_runtime((await daemon.state()).runtimes, runtime_id)
            if runtime is not None and runtime.state == RuntimeState.FAILED:
                error.message += last_lines(runtime)
        raise


def last_lines(runtime: RuntimeStatus) -> str:
    """What the engine wrote last, a line below the other; empty when it left nothing."""
    return "".join(f"\n  {line}" for line in runtime.log)
