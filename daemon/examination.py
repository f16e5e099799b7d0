"""`llmgw doctor` with a daemon: gathers the facts from what the daemon knows, and has the checks judge them."""

from datetime import UTC, datetime

from core.files import StorageError
from core.firewall import FirewallState
from core.hardware import DoctorReport, HardwareState
from core.http.client import HttpClient
from core.runtime import RuntimeState
from daemon.adoption import parse_files
from daemon.gates import find_gates_down
from daemon.hardware.doctor import examine
from daemon.hardware.facts import (
    Facts,
    FailedRuntime,
    read_absent_mirrors,
    read_gateway_port,
    read_port_ranges,
    user_exists,
)
from daemon.node import Node
from daemon.status import read_backends, read_complaints


async def examine_node(node: Node, hardware: HardwareState, firewall: FirewallState, http: HttpClient) -> DoctorReport:
    """`hardware` was read just now."""
    use = node.config_use
    config = use.loaded.config
    ephemeral, reserved = read_port_ranges()
    facts = Facts(
        node=node.preparer.node,
        daemon_runs=True,
        daemon_hint="",
        config=config,
        config_path=str(use.loaded.path),
        config_error=use.error,
        hardware=hardware,
        firewall=firewall,
        keys_fault=node.keys.fault,
        gateway=await read_gateway_port(http, config.server.host, config.server.port, tls=config.server.tls.is_on),
        engine_user=config.engines.user,
        engine_user_needed=node.backend.name == "systemd",
        engine_user_exists=user_exists(config.engines.user),
        ephemeral_ports=ephemeral,
        reserved_ports=reserved,
        failed_runtimes=tuple(
            FailedRuntime(runtime_id, controller.reason, controller.error.hint if controller.error else "")
            for runtime_id, controller in sorted(node.controllers.items())
            if controller.state is RuntimeState.FAILED
        ),
        gates_down=await find_gates_down(node.controllers, node.backend),
        gateway_complaints=tuple(read_complaints(node)),
        backends=tuple(read_backends(node)),
        absent_mirrors=read_absent_mirrors(config),
        unreadable_units=tuple((await _read_faults(node)).items()),
    )
    return examine(facts, datetime.now(UTC).isoformat(timespec="seconds"))


async def _read_faults(node: Node) -> dict[str, str]:
    """What is wrong with unit files of ours."""
    try:
        return parse_files(await node.backend.read_files())[1]
    except StorageError as error:
        return {"a unit file": error.message}
