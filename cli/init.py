"""`llmgw init`: a first config from what this machine is. A dry run unless `--apply`."""

import asyncio

import click

from cli.first_config import facts, first_config
from cli.machine import Machine, read_machine
from cli.output import note, say, show_json
from cli.reload import describe, reload_daemon
from cli.session import Session, pass_session, shared_options
from core.config.load import read_environment_file
from core.config.write import Document, edit_config, render_edit
from core.errors import ConflictError, LlmgwError
from core.files import ensure_directory, storage_error
from core.paths import Layout

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8100


class ConfigExists(ConflictError):
    """There is a config that somebody wrote."""

    code = "config_exists"


@click.command(short_help="Write a first config.")
@click.option("--apply", "apply_it", is_flag=True, help="Write it. Without this, it is only shown.")
@click.option("--force", is_flag=True, help="Replace a config that has content; the old one is kept beside it.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=DEFAULT_PORT, show_default=True, help="The gateway's port."
)
@shared_options
@pass_session
def init(session: Session, apply_it: bool, force: bool, port: int) -> None:
    """Write a first config from what is found here: CPUs, memory, cards, a free port.

    A config that has content is never overwritten unless --force is given; one that is all comments counts as empty.
    """
    layout = session.layout
    machine = read_machine(DEFAULT_HOST, port)

    def change(document: Document) -> None:
        if document and not force:
            raise ConfigExists(
                f"{layout.config} has content already: {', '.join(document)}",
                hint="llmgw config show; --force replaces it and keeps the old one as config.yaml.previous",
            )
        first_config(document, machine, host=DEFAULT_HOST, port=port)

    text = render_edit(_read_bytes(layout), layout.config, change)
    if apply_it:
        ensure_directory(layout.config.parent, mode=_mode_of(layout))
        edit_config(layout.config, {**read_environment_file(layout.environment), **session.environment()}, change)
    _report(session, layout, machine, text, applied=apply_it)


def _report(session: Session, layout: Layout, machine: Machine, text: str, *, applied: bool) -> None:
    if session.json:
        show_json({"applied": applied, "path": str(layout.config), "config": text})
    elif not applied:
        note(f"{layout.config} would become:")
        say(text.rstrip("\n"))
    note(f"found: {facts(machine)}")
    if not applied:
        note("nothing was changed; `llmgw init --apply` writes it")
        return
    note(f"wrote {layout.config}")
    try:
        for line in describe(asyncio.run(reload_daemon(session))):
            note(f"daemon: {line}")
    except LlmgwError as error:
        note(f"the daemon has not read it yet: {error.message}")
    note("next: llmgw model add smollm2-135m")


def _read_bytes(layout: Layout) -> bytes:
    try:
        return layout.config.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise storage_error(layout.config, error) from error


def _mode_of(layout: Layout) -> int:
    """The folder's own mode when it exists: it is not ours to change."""
    try:
        return layout.config.parent.stat().st_mode & 0o7777
    except FileNotFoundError:
        return 0o755
