"""`llmgw service`: this machine's llmgw services, through systemd.

The one use of `systemctl` by us: it is what a person would type, with their own rights and polkit's questions. The
daemon itself speaks D-Bus.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import click

from cli.output import say, show_json, show_table
from cli.session import Session, pass_session, shared_options
from core.errors import UnavailableError
from core.process import run_process

UNITS = ("llmgw.target", "llmgw-daemon.service", "llmgw-gateway.socket", "llmgw-gateway.service")
"""The static units of the package, in the order in which they are shown."""

GENERATED = ("llmgw-engine-*.service", "llmgw-gate-*.service")

_PROPERTIES = ("Id", "LoadState", "ActiveState", "SubState", "MainPID", "Description")
_SHOW_S = 10.0
_CHANGE_S = 120.0


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """One unit, in systemd's words."""

    unit: str
    load: str
    active: str
    sub: str
    pid: int
    description: str


@click.group(short_help="This machine's services, through systemd.")
def service() -> None:
    """Look at and change this machine's llmgw services (systemd)."""


@service.command("status")
@shared_options
@pass_session
def service_status(session: Session) -> None:
    """Show the services: target, daemon, gateway, and every generated engine unit."""
    rows = asyncio.run(_read_rows())
    if session.json:
        show_json(
            {"units": [{"unit": r.unit, "load": r.load, "active": r.active, "sub": r.sub, "pid": r.pid} for r in rows]}
        )
        return
    show_table(
        ("UNIT", "ACTIVE", "SUB", "PID", "DESCRIPTION"),
        [(row.unit, row.active, row.sub, str(row.pid or "-"), row.description) for row in rows],
    )
    say()
    say("Logs: journalctl -u 'llmgw-*'   Engines: llmgw runtimes")


def _changing(verb: str, help_text: str) -> None:
    @service.command(verb, help=help_text)
    @shared_options
    @pass_session
    def command(session: Session) -> None:
        asyncio.run(_change(verb))
        if session.json:
            show_json({"ok": True, "verb": verb, "unit": "llmgw.target"})
        else:
            say(f"llmgw.target: {verb} done")


_changing("start", "Start daemon and gateway; runtimes that are to be kept warm follow.")
_changing("stop", "Stop daemon and gateway. Engines go on running until their runtimes are stopped.")
_changing("restart", "Restart daemon and gateway. Engines go on running.")


async def _change(verb: str) -> None:
    require_systemd()
    await run_process(["systemctl", verb, "llmgw.target"], timeout_s=_CHANGE_S)


async def _read_rows() -> list[ServiceRow]:
    require_systemd()
    argv = ["systemctl", "show", f"--property={','.join(_PROPERTIES)}", "--", *UNITS, *GENERATED]
    return parse_show((await run_process(argv, timeout_s=_SHOW_S)).text)


def parse_show(text: str) -> list[ServiceRow]:
    """Read `systemctl show` of several units: `Name=value` lines, a blank line between units."""
    rows = []
    for block in text.split("\n\n"):
        facts = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
        if "Id" in facts:
            pid = facts.get("MainPID", "0")
            rows.append(
                ServiceRow(
                    unit=facts["Id"],
                    load=facts.get("LoadState", ""),
                    active=facts.get("ActiveState", ""),
                    sub=facts.get("SubState", ""),
                    pid=int(pid) if pid.isdigit() else 0,
                    description=facts.get("Description", ""),
                )
            )
    return rows


def require_systemd() -> None:
    """Raises: UnavailableError where systemd does not run this machine (sd_booted(3) looks at the same folder)."""
    if not Path("/run/systemd/system").is_dir():
        raise UnavailableError(
            "systemd does not run this machine, so there are no llmgw services to manage",
            hint="llmgw up runs the same in the foreground",
            code="no_systemd",
        )
