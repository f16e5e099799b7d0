"""What the doctor's checks look at, gathered once; the checks themselves are pure.

The daemon gathers with what it knows; where no daemon runs, the command gathers by itself, which is the same minus
the runtimes' states.
"""

import os
import pwd
import socket
from dataclasses import dataclass
from pathlib import Path

import msgspec

from core.api import BackendStatus, GateStatus
from core.config.schema import Config
from core.errors import LlmgwError
from core.firewall import FirewallState
from core.hardware import HardwareState
from core.http.client import HttpClient
from daemon.hardware.sysfs import read_text
from engines.mirror import named_mirrors

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
RESERVED = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")
_ANSWER_S = 3.0
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - compared only


@dataclass(frozen=True, slots=True)
class GatewayPort:
    """Who answers where clients come in."""

    host: str
    port: int
    state: str
    """`ours`, `other`, `silent` (held, but nobody answers) or `free`."""


@dataclass(frozen=True, slots=True)
class FailedRuntime:
    id: str
    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that a check may ask."""

    node: str
    daemon_runs: bool
    daemon_hint: str
    """How to start it here."""
    config: Config | None
    """None: it cannot be used."""
    config_path: str
    config_error: str
    hardware: HardwareState
    gateway: GatewayPort | None
    engine_user: str
    engine_user_needed: bool
    engine_user_exists: bool
    ephemeral_ports: str
    reserved_ports: str
    failed_runtimes: tuple[FailedRuntime, ...] = ()
    gates_down: tuple[tuple[str, GateStatus], ...] = ()
    """(runtime, its gate) of engines that run behind a gate that does not."""
    gateway_complaints: tuple[str, ...] = ()
    """Why the gateway does not serve as the config says, by its processes."""
    backends: tuple[BackendStatus, ...] = ()
    unreadable_units: tuple[tuple[str, str], ...] = ()
    """Generated unit files without a record that can be trusted: name and what is wrong."""
    firewall: FirewallState | None = None
    """None: nobody knows, for no daemon runs."""
    keys_fault: str = ""
    """Why clients' keys cannot be read; empty when they can, or nobody knows."""
    absent_mirrors: tuple[str, ...] = ()
    """Places of the config's mirrors that are no directories here."""


def read_absent_mirrors(config: Config) -> tuple[str, ...]:
    """Directories that are named as mirrors and cannot be listed."""
    here = (mirror.place for mirror in named_mirrors(config) if mirror.is_here)
    return tuple(place for place in here if not os.access(place, os.R_OK | os.X_OK) or not os.path.isdir(place))


async def read_gateway_port(http: HttpClient, host: str, port: int, *, tls: bool = False) -> GatewayPort:
    """Ask for the gateway's own words: a listener alone may be anybody's."""
    reached = _ANY.get(host, host)
    name = f"[{reached}]" if ":" in reached and not reached.startswith("[") else reached
    try:
        url = f"{'https' if tls else 'http'}://{name}:{port}/health"
        reply = await http.fetch("GET", url, timeout_s=_ANSWER_S, verify=False)
    except LlmgwError:
        return GatewayPort(host, port, "silent" if _is_held(reached.strip("[]"), port) else "free")
    return GatewayPort(host, port, "ours" if _is_ours(reply.body) else "other")


class _Health(msgspec.Struct):
    name: str = ""


def _is_ours(body: bytes) -> bool:
    try:
        return msgspec.json.decode(body, type=_Health).name == "llmgw"
    except (msgspec.MsgspecError, RecursionError):
        return False


def _is_held(host: str, port: int) -> bool:
    """Whether somebody listens there; one that took the connection and said no HTTP does."""
    try:
        with socket.create_connection((host, port), timeout=0.5):
            return True
    except OSError:
        return False


def user_exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def read_port_ranges() -> tuple[str, str]:
    """The kernel's ephemeral range and what is reserved out of it, as it writes them."""
    return read_text(EPHEMERAL), read_text(RESERVED)
