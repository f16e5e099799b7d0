"""`llmgw firewall sync`: root installs what a node that may not touch the firewall asks for in its state file.

What the file says is untrusted; how far it may go is decided by root's own config (`firewall/state_file.py`). Run by
hand, or by `llmgw-firewall-sync.path` whenever the file changes.
"""

import asyncio
import os
import pwd
from pathlib import Path

import click

from cli.firewall_units import install
from cli.output import say, show_json
from cli.session import Session, pass_session, shared_options
from core.client import DaemonClient, DaemonUnavailable
from core.clock import SystemClock
from core.config.load import ConfigMissing, load_config
from core.config.schema import Config
from core.errors import ConflictError, PermissionError_
from core.paths import Layout
from firewall.guard import Guard, News
from firewall.kernel import load_kernel
from firewall.plan import Plan, Step
from firewall.policy import Policy
from firewall.ruleset import build_table
from firewall.state_file import allowed_ports, parse_wish, read_wish
from firewall.text import render_removal, render_script

_GATEWAY_USER = "llmgw"


@click.command("sync", short_help="As root: install what an unprivileged node asks for.")
@click.option("--install", "install_units", is_flag=True, help="Do it by itself from now on, whenever it changes.")
@click.option("--dry-run", is_flag=True, help="Show the rules as nft text and change nothing.")
@shared_options
@pass_session
def sync(session: Session, install_units: bool, dry_run: bool) -> None:
    """Check the node's state file as untrusted input and install the table that it asks for; for root.

    The file is STATE/lib/firewall.json with --state, else /var/lib/llmgw/firewall.json. It may speak only of ports that
    this machine's own config gives to llmgw. A file that is wrong anywhere is refused whole. Where the daemon of the
    package runs, it keeps the firewall, and this is refused.
    """
    if os.geteuid() != 0:
        raise PermissionError_("llmgw firewall sync is for root", hint="sudo llmgw firewall sync", code="needs_root")
    if install_units:
        asyncio.run(install(session, dry_run=dry_run))
        return
    policy = _wished(session)
    if dry_run:
        script = render_removal() if policy is None else render_script(build_table(policy))
        show_json({"script": script}) if session.json else say(script.rstrip("\n"))
        return
    _show(session, asyncio.run(_apply(policy)))


def _wished(session: Session) -> Policy | None:
    path = session.layout.firewall_wish
    return parse_wish(read_wish(path, _writers(path)), allowed_ports(_own_config()))


def _own_config() -> Config:
    """Root's, whatever `--state` says: it is what the wish is measured by."""
    try:
        return load_config(Layout.system(), os.environ).config
    except ConfigMissing:
        return Config()


def _writers(path: Path) -> set[int]:
    """Who may write the wish: root, our own user, and whose folder it lies in."""
    writers = {0}
    try:
        writers.add(path.parent.stat().st_uid)
        writers.add(pwd.getpwnam(_GATEWAY_USER).pw_uid)
    except (OSError, KeyError):
        pass  # no folder: then there is no file either; no such user: then nothing is his
    return writers


async def _apply(policy: Policy | None) -> Plan:
    """One look of the guard. Raises: ConflictError where the daemon keeps the table, and why it could not be made."""
    if await _is_kept_by_daemon(Layout.system().daemon_socket):
        raise ConflictError(
            "the daemon of this machine keeps the firewall",
            hint="set firewall.networks in /etc/llmgw/config.yaml",
            code="firewall_kept_by_daemon",
        )
    done: list[News] = []
    standing = await Guard(load_kernel(), lambda: policy, tell=done.append, clock=SystemClock()).check()
    if standing.reason is not None:
        raise standing.reason
    return done[-1].plan


async def _is_kept_by_daemon(path: Path) -> bool:
    """One that says that it cannot keep the table leaves it to us."""
    try:
        async with DaemonClient(path) as daemon:
            return (await daemon.firewall()).state != "unguarded"
    except DaemonUnavailable:
        return False


_DONE = {
    Step.NOTHING: "the table is as it was asked for",
    Step.INSTALL: "installed the table",
    Step.ELEMENTS: "changed ports and networks; the rules stay and count on",
    Step.REPLACE: "replaced the table, which somebody had changed",
    Step.REMOVE: "took the table away",
}


def _show(session: Session, plan: Plan) -> None:
    if session.json:
        show_json({"step": plan.step.value, "difference": plan.difference})
        return
    say(_DONE[plan.step])
    for line in plan.difference:
        say(f"  {line}")
