"""`llmgw runtime-plan`, `runtime-admit` and `runtime-warmup`: what loading a runtime would take, and doing it."""

import asyncio
import sys

import click

from cli.completion import runtimes_here
from cli.output import say, show_json, show_table
from cli.session import Session, pass_session, shared_options
from core.admission import PlanReply, PoolReply, WarmupReply
from core.errors import RefusedError

_POOL_COLUMNS = ("MEMORY", "BUDGET", "USED", "LOADED", "REQUESTED", "PROJECTED", "OVER")
_ROW_COLUMNS = ("RUNTIME", "ACTION", "MEMORY", "REASON")


class PlanRefused(RefusedError):
    """Admission says no; the code is the plan's."""


@click.command("runtime-plan", short_help="Show what loading a runtime would take.")
@click.argument("runtime_id", metavar="ID", shell_complete=runtimes_here)
@shared_options
@pass_session
def runtime_plan(session: Session, runtime_id: str) -> None:
    """Show whether a runtime fits, what would be stopped for it, and why. Changes nothing.

    A client that is refused reads the same words. The exit code is 0 when it fits.
    """

    async def plan() -> PlanReply:
        async with session.daemon() as daemon:
            return await daemon.plan_runtime(runtime_id)

    reply = asyncio.run(plan())
    _show(session, reply)
    if not reply.allowed:
        sys.exit(PlanRefused.exit_code)


@click.command("runtime-admit", short_help="Load a runtime, stopping what the plan says.")
@click.argument("runtime_id", metavar="ID", shell_complete=runtimes_here)
@click.option("--apply", is_flag=True, help="Do it; without this the plan is only shown.")
@shared_options
@pass_session
def runtime_admit(session: Session, runtime_id: str, apply: bool) -> None:
    """Show the plan, and with --apply carry it out: stop the idle runtimes that it names, then start this one."""

    async def admit() -> PlanReply:
        async with session.daemon() as daemon:
            return await (daemon.admit_runtime(runtime_id) if apply else daemon.plan_runtime(runtime_id))

    reply = asyncio.run(admit())
    _show(session, reply)
    if not reply.allowed:
        sys.exit(PlanRefused.exit_code)
    if not apply and not session.json:
        say("nothing was changed; --apply does it")


@click.command("runtime-warmup", short_help="Let a running engine answer a first request.")
@click.argument("runtime_id", metavar="ID", shell_complete=runtimes_here)
@shared_options
@pass_session
def runtime_warmup(session: Session, runtime_id: str) -> None:
    """Send a running engine the request that `warmup` of its config describes, or one token of chat."""

    async def warm_up() -> WarmupReply:
        async with session.daemon() as daemon:
            return await daemon.warm_up_runtime(runtime_id)

    reply = asyncio.run(warm_up())
    if session.json:
        show_json(reply)
    else:
        say(f"{runtime_id}: answered within {reply.took_s:g} s")


def _show(session: Session, reply: PlanReply) -> None:
    if session.json:
        show_json(reply)
        return
    say(reply.message)
    if reply.pools:
        show_table(_POOL_COLUMNS, [_pool(pool) for pool in reply.pools])
    rows = [(row.id, row.action, mib(row.memory_mib), row.reason) for row in reply.runtimes]
    show_table(_ROW_COLUMNS, rows)


def _pool(pool: PoolReply) -> tuple[str, ...]:
    sizes = (pool.budget_mib, pool.used_mib, pool.loaded_mib, pool.requested_mib, pool.projected_mib, pool.over_mib)
    return (pool.name, *(mib(size) for size in sizes))


def mib(size: int | None) -> str:
    """A size for a table; `-` where it is not known."""
    if size is None:
        return "-"
    return f"{size / 1024:.1f} GiB" if size >= 1024 else f"{size} MiB"
