"""`llmgw backends`: the services of others that models are served by, as the gateway has found them."""

import asyncio
from datetime import UTC, datetime

import click

from cli.backend_views import BACKEND_COLUMNS, backend_details, backend_row
from cli.output import say, show_json, show_table
from cli.session import Session, pass_session, shared_options
from cli.status import read_state
from core.api import BackendStatus
from core.config.names import no_such
from core.errors import NotFoundError


class BackendUnknown(NotFoundError):
    """The config has no backend of that name."""

    code = "backend_unknown"


@click.command(short_help="List the backends, or show one.")
@click.argument("backend_id", metavar="[ID]", required=False)
@shared_options
@pass_session
def backends(session: Session, backend_id: str | None) -> None:
    """List the services of others that models are served by, or show one with all that is known of it."""
    known = asyncio.run(read_state(session)).backends
    chosen = known if backend_id is None else [find_backend(known, backend_id)]
    now = datetime.now(UTC)
    if session.json:
        show_json({"backends": chosen})
    elif backend_id is not None:
        for line in backend_details(chosen[0], now):
            say(line)
    elif chosen:
        show_table(BACKEND_COLUMNS, [backend_row(backend, now) for backend in chosen])
    else:
        say("No backends. They are a section of the config: llmgw-config(5).")


def find_backend(known: list[BackendStatus], backend_id: str) -> BackendStatus:
    """Raises: BackendUnknown."""
    found = next((backend for backend in known if backend.id == backend_id), None)
    if found is None:
        raise BackendUnknown(no_such("backend", backend_id, [each.id for each in known]), hint="llmgw backends")
    return found
