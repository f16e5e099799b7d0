"""`llmgw reload`: have the daemon read the config again."""

import asyncio

import click

from cli.output import say, show_json
from cli.session import Session, pass_session, shared_options
from core.api import ReloadResult


@click.command(short_help="Apply the config file.")
@shared_options
@pass_session
def reload(session: Session) -> None:
    """Apply the config file. Only what changed is restarted; an invalid file is refused whole."""
    result = asyncio.run(reload_daemon(session))
    if session.json:
        show_json(result)
        return
    for line in describe(result):
        say(line)


async def reload_daemon(session: Session) -> ReloadResult:
    async with session.daemon() as daemon:
        return await daemon.reload()


def describe(result: ReloadResult, *, would: bool = False) -> list[str]:
    """What a reload did, or would do, a line per kind of change."""
    if not result.changed:
        return ["nothing would change"] if would else ["nothing changed"]
    done = (("started", result.started), ("restarted", result.restarted), ("stopped", result.stopped))
    lines = [f"{'would be ' if would else ''}{what}: {', '.join(ids)}" for what, ids in done if ids]
    return lines or ["no runtime would be restarted" if would else "applied; no runtime had to be restarted"]
