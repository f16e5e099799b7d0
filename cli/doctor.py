"""`llmgw doctor`: what is wrong with this node, whether it blocks, and the command or setting that mends it.

The daemon looks, since it knows and may see more. Where none runs, the command looks by itself, at everything but
the runtimes: that the daemon does not run is then a finding among the others, not the end of the search.
"""

import asyncio
import socket
from datetime import UTC, datetime
from pathlib import Path

import click

from cli.output import say, show_json
from cli.session import Session, not_running, pass_session, shared_options
from core.clock import SystemClock
from core.config.cluster import local_node
from core.config.load import ConfigMissing, load_config
from core.config.problem import ConfigErrors
from core.config.schema import Config
from core.errors import UnavailableError
from core.hardware import DoctorReport, Finding
from core.http.client import HttpClient
from daemon.hardware.doctor import examine
from daemon.hardware.facts import Facts, read_absent_mirrors, read_gateway_port, read_port_ranges, user_exists
from daemon.hardware.inventory import build_state
from daemon.hardware.probe import Probe
from daemon.hardware.settings import hardware_settings


@click.command(short_help="Say what is wrong with this node, and how to mend it.")
@click.option("--all", "show_all", is_flag=True, help="Show what is in order too.")
@shared_options
@pass_session
@click.pass_context
def doctor(context: click.Context, session: Session, show_all: bool) -> None:
    """Check daemon, config, gateway, ports, users, processor, memory, disks, cards and fabrics.

    Each finding says what was found, whether it blocks serving, and the command or the setting that mends it. The
    exit code is 9 when something blocks, else 0.
    """
    report = asyncio.run(_examine(session))
    if session.json:
        show_json(report)
    else:
        _show(report, show_all)
    if not report.ok:
        context.exit(UnavailableError.exit_code)


async def _examine(session: Session) -> DoctorReport:
    try:
        async with session.daemon() as daemon:
            return await daemon.doctor()
    except UnavailableError as error:
        if error.code != "daemon_not_running":
            raise
    return await examine_without_daemon(session)


async def examine_without_daemon(session: Session) -> DoctorReport:
    """Look with our own eyes, and with the rights of who asks."""
    environ, layout = session.environment(), session.layout
    config, complaint = _config(session)
    settings, clock = hardware_settings(config or Config(), layout), SystemClock()
    probe = Probe(settings.places, clock)
    await probe.read_all()
    stamp = datetime.now(UTC).isoformat(timespec="seconds")
    ephemeral, reserved = read_port_ranges()
    async with HttpClient() as http:
        gateway = None
        if config is not None:
            server = config.server
            gateway = await read_gateway_port(http, server.host, server.port, tls=server.tls.is_on)
    user = (config or Config()).engines.user
    facts = Facts(
        node=local_node((config or Config()).cluster, socket.gethostname()),
        daemon_runs=False,
        daemon_hint=not_running(environ).hint,
        config=config,
        config_path=str(layout.config),
        config_error=complaint,
        hardware=build_state(probe.inventory, settings.rules, clock.monotonic_s(), stamp),
        gateway=gateway,
        engine_user=user,
        engine_user_needed=not environ.get("LLMGW_STATE") and Path("/run/systemd/system").is_dir(),
        engine_user_exists=user_exists(user),
        ephemeral_ports=ephemeral,
        reserved_ports=reserved,
        absent_mirrors=read_absent_mirrors(config or Config()),
    )
    return examine(facts, stamp)


def _config(session: Session) -> tuple[Config | None, str]:
    try:
        return load_config(session.layout, session.environment()).config, ""
    except (ConfigErrors, ConfigMissing) as error:
        return None, error.message


def _show(report: DoctorReport, show_all: bool) -> None:
    for finding in report.findings:
        if show_all or finding.status != "ok":
            _show_finding(finding)
    if not report.complete:
        say("The daemon does not run: runtimes and the driver's messages were not looked at.")
    say(f"{_count(report.blockers, 'finding')} that block, {_count(report.warnings, 'warning')}.")


def _show_finding(finding: Finding) -> None:
    say(f"{finding.status:8} {finding.check}: {finding.found}")
    if finding.remedy:
        say(f"         {finding.remedy}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
