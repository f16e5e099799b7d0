"""`llmgw status`: this machine's node at a glance."""

import asyncio
from datetime import UTC, datetime

import click

from cli.backend_views import BACKEND_COLUMNS, backend_row
from cli.output import say, show_json, show_table
from cli.session import Session, pass_session, shared_options
from cli.views import RUNTIME_COLUMNS, node_lines, runtime_row
from core.api import NodeState


@click.command(short_help="Show the node at a glance.")
@shared_options
@pass_session
def status(session: Session) -> None:
    """Show the node: daemon, config in use, memory, every runtime with its state and reason, and every backend."""
    state = asyncio.run(read_state(session))
    if session.json:
        show_json(state)
        return
    now = datetime.now(UTC)
    for line in node_lines(state, now):
        say(line)
    say()
    if state.runtimes:
        show_table(RUNTIME_COLUMNS, [runtime_row(runtime, now) for runtime in state.runtimes])
    else:
        say("No runtimes. `llmgw model add smollm2-135m` adds a small one.")
    if state.backends:
        say()
        show_table(BACKEND_COLUMNS, [backend_row(backend, now) for backend in state.backends])


async def read_state(session: Session) -> NodeState:
    async with session.daemon() as daemon:
        return await daemon.state()
