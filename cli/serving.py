"""`llmgw stop` and `llmgw start`: free this node's engines as a whole, and serve again. The config stays as it is."""

import asyncio

import click

from cli.output import say, show_json
from cli.session import Session, pass_session, shared_options
from core.admission import ServingReply


@click.command("stop", short_help="Free all engines; refuse requests until `llmgw start`.")
@shared_options
@pass_session
def stop(session: Session) -> None:
    """Stop serving: every inference request is answered with 503 `system_stopped`, and all engines are stopped.

    Requests under way are let to their end. Nothing in the config changes.
    """
    _set(session, on=False)


@click.command("start", short_help="Serve again after `llmgw stop`.")
@shared_options
@pass_session
def start(session: Session) -> None:
    """Serve again: pinned runtimes are started, others when somebody asks for them."""
    _set(session, on=True)


def _set(session: Session, *, on: bool) -> None:
    async def ask() -> ServingReply:
        async with session.daemon() as daemon:
            return await daemon.set_serving(on)

    reply = asyncio.run(ask())
    if session.json:
        show_json(reply)
    elif on:
        say("serving")
    else:
        say("stopped serving" + (f"; stopping {', '.join(reply.stopped)}" if reply.stopped else ""))
