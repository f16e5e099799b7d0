"""`llmgw wipe`: remove what llmgw keeps on this machine."""

import asyncio
import sys

import click

from cli.output import say, show_json, show_table
from cli.plan import mib
from cli.session import Session, pass_session, shared_options
from core.errors import UsageError
from core.wipe import WipePlan, WipeRequest


@click.command("wipe", short_help="Remove builds, homes and state from this machine.")
@click.option("--models", is_flag=True, help="Remove fetched weights too.")
@click.option("--all", "everything", is_flag=True, help="Remove weights, the config and the gateway's state too.")
@click.option("--confirm", metavar="NODE", help="This node's name, instead of being asked for it.")
@shared_options
@pass_session
def wipe(session: Session, models: bool, everything: bool, confirm: str | None) -> None:
    """List what goes, ask for this node's name, then stop every engine and remove it.

    Without a terminal and without --confirm only the list is shown. Serving stays stopped until `llmgw start`.
    """

    async def plan() -> WipePlan:
        async with session.daemon() as daemon:
            return await daemon.plan_wipe(models=models, everything=everything)

    async def carry_out(name: str) -> WipePlan:
        async with session.daemon() as daemon:
            return await daemon.wipe(WipeRequest(confirm=name, models=models, all=everything))

    planned = asyncio.run(plan())
    if confirm is None:
        _show(session, planned)
        if session.json or not sys.stdin.isatty():
            return
        confirm = click.prompt("type the node's name to remove all of this", default="", show_default=False, err=True)
        if confirm != planned.node:
            raise UsageError("that is not this node's name; nothing was removed", code="wipe_not_confirmed")
    done = asyncio.run(carry_out(confirm))
    if session.json:
        show_json(done)
    else:
        say(f"removed {len(done.items)} things; serving is stopped until `llmgw start`")


def _show(session: Session, plan: WipePlan) -> None:
    if session.json:
        show_json(plan)
        return
    rows = [(item.path, item.what, mib(item.size_bytes >> 20)) for item in plan.items]
    show_table(("PATH", "WHAT", "SIZE"), rows)
    if plan.stops:
        say(f"stops {', '.join(plan.stops)}")
