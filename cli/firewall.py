"""`llmgw firewall`: who reaches this node's ports. Looks, compares, and switches on and off."""

import asyncio
import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime

import click

from cli.config import load_checked
from cli.firewall_sync import sync
from cli.firewall_views import firewall_lines
from cli.output import note, say, show_json
from cli.session import Session, pass_session, shared_options
from core.config.cluster import local_node
from core.config.load import config_variables, has_made_keys
from core.config.schema import Config
from core.config.write import Document, edit_config
from core.errors import ConflictError, DependencyError, LlmgwError, UnavailableError, UsageError
from core.firewall import FirewallState
from core.peers import peer_addresses, read_resolved
from firewall.kernel import load_kernel
from firewall.normalize import difference_of_texts, normalize
from firewall.policy import build_policy
from firewall.ruleset import build_table
from firewall.text import render, render_removal, render_script, without_counts


class FirewallUnguarded(DependencyError):
    """The firewall is switched on, and cannot be kept."""

    code = "firewall_unguarded"


@click.group(short_help="Show, compare and switch the firewall of this node.")
def firewall() -> None:
    """Who reaches this node's ports: one nftables table, inet llmgw. The tables of others are never touched."""


@firewall.command("status")
@shared_options
@pass_session
def firewall_status(session: Session) -> None:
    """Say whether the node is guarded, and if not why; who is let through; what others changed and was mended."""
    _show_state(session, asyncio.run(_look(session)))


@firewall.command("show")
@click.option("--dry-run", is_flag=True, help="Show what the config asks for, not what is installed.")
@shared_options
@pass_session
def firewall_show(session: Session, dry_run: bool) -> None:
    """Show the table as the kernel has it, with what each rule has counted."""
    if dry_run:
        _show_script(session, load_checked(session).config)
        return
    table = asyncio.run(_read_table(session))
    if session.json:
        show_json({"table": table})
    else:
        say((table or "# no table is installed").rstrip("\n"))


@firewall.command("diff")
@shared_options
@pass_session
@click.pass_context
def firewall_diff(context: click.Context, session: Session) -> None:
    """Compare the table in the kernel with what the config file asks for; the exit code is 5 when they differ."""
    config = load_checked(session).config
    wanted = wanted_text(config, _peers(session, config))
    lines = difference_of_texts(without_counts(asyncio.run(_read_table(session)) or ""), wanted)
    if session.json:
        show_json({"inSync": not lines, "difference": lines})
    else:
        for line in lines or ("no difference",):
            say(line)
    if lines:
        context.exit(ConflictError.exit_code)


def _switching(verb: str, enabled: bool, help_text: str) -> None:
    @firewall.command(verb, help=help_text)
    @click.option("--dry-run", is_flag=True, help="Show the rules as nft text and change nothing.")
    @shared_options
    @pass_session
    def command(session: Session, dry_run: bool) -> None:
        if dry_run:
            config = load_checked(session).config
            _show_script(session, config) if enabled else _say_script(session, render_removal())
        else:
            asyncio.run(_switch(session, enabled))


_switching("on", True, "Write firewall.enabled: true to the config, reload, and install the table.")
_switching("off", False, "Write firewall.enabled: false to the config, reload, and take the table away.")
firewall.add_command(sync)


def wanted_text(config: Config, peers: Mapping[str, str] | None = None) -> str:
    """The table that a config asks for, in its one form and without counts; empty for none."""
    if not config.firewall.enabled:
        return ""
    return render(normalize(build_table(build_policy(config, peers=peers))))


def _peers(session: Session, config: Config) -> dict[str, str]:
    """The other nodes' addresses; of names, what the daemon knew last."""
    here = local_node(config.cluster, socket.gethostname())
    return peer_addresses(config.cluster, here, read_resolved(session.layout.peer_names))


async def _switch(session: Session, enabled: bool) -> None:
    def change(document: Document) -> None:
        section = document.get("firewall")
        if section is None:
            document["firewall"] = {"enabled": enabled}
        elif isinstance(section, dict):
            section["enabled"] = enabled
        else:
            raise UsageError("firewall in the config is no section", hint="llmgw config check")

    layout, environ = session.layout, session.environment()
    variables = config_variables(layout, environ)
    edit_config(layout.config, variables, change, has_made_keys=has_made_keys(layout))
    try:
        async with session.daemon() as daemon:
            await daemon.reload()
            state = await daemon.firewall(fresh=True)
    except UnavailableError as error:
        if error.code != "daemon_not_running":
            raise
        note("the config is changed; it holds when the daemon runs")
        return
    if state.state == "unguarded":
        raise FirewallUnguarded(
            f"the config says on, but the node is unguarded: {state.reason}", hint=state.hint or "llmgw firewall status"
        )
    _show_state(session, state)


async def _look(session: Session) -> FirewallState:
    async with session.daemon() as daemon:
        return await daemon.firewall(fresh=True)


async def _read_table(session: Session) -> str | None:
    """From the daemon; where none runs, with root's own eyes. Raises: why it cannot be read."""
    try:
        state = await _look(session)
    except LlmgwError as error:
        if error.code != "daemon_not_running" or os.geteuid() != 0:
            raise
        present = await load_kernel().read()
        return None if present is None else render(normalize(present, keep_counted=True))
    if state.table is None and state.reason:
        raise FirewallUnguarded(state.reason, hint=state.hint)
    return state.table


def _show_state(session: Session, state: FirewallState) -> None:
    if session.json:
        show_json(state)
        return
    for line in firewall_lines(state, datetime.now(UTC)):
        say(line)


def _show_script(session: Session, config: Config) -> None:
    policy = build_policy(config, peers=_peers(session, config))
    _say_script(session, render_script(build_table(policy)))


def _say_script(session: Session, script: str) -> None:
    if session.json:
        show_json({"script": script})
    else:
        say(script.rstrip("\n"))
