"""`llmgw logs`: what an engine writes."""

import asyncio
from contextlib import aclosing

import click

from cli.completion import runtimes_here
from cli.output import say, show_json, show_json_line
from cli.session import Session, pass_session, shared_options


@click.command(short_help="Show what an engine writes.")
@click.argument("runtime_id", metavar="ID", shell_complete=runtimes_here)
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until Ctrl-C.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, 100_000),
    default=100,
    show_default=True,
    help="How many lines to begin with.",
)
@shared_options
@pass_session
def logs(session: Session, runtime_id: str, follow: bool, lines: int) -> None:
    """Show a runtime's log, oldest line first.

    With --json, one object `{"runtime", "lines"}`; with --json --follow, one such object per line.
    """
    asyncio.run(_show(session, runtime_id, follow=follow, lines=lines))


async def _show(session: Session, runtime_id: str, *, follow: bool, lines: int) -> None:
    collected: list[str] = []
    async with session.daemon() as daemon, aclosing(daemon.logs(runtime_id, lines=lines, follow=follow)) as log:
        async for line in log:
            if session.json and not follow:
                collected.append(line)
            elif session.json:
                show_json_line({"runtime": runtime_id, "lines": [line]})
            else:
                say(line)
    if session.json and not follow:
        show_json({"runtime": runtime_id, "lines": collected})
