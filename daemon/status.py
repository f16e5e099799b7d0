"""The node's state as the local API tells it."""

import os

from core import VERSION
from core.api import BackendStatus, ConfigStatus, KvEventsStatus, NodeState, RuntimeStatus
from core.config.idle import find_idle
from core.errors import LlmgwError
from core.firewall import FirewallState
from core.hardware import HardwareState, Memory
from core.runtime import RuntimeState
from daemon.backend_status import backend_statuses
from daemon.cluster import cluster_state
from daemon.gates import read_gate
from daemon.hardware.memory import read_memory
from daemon.node import Node
from daemon.runtimes.controller import RuntimeController
from daemon.runtimes.processes import read_resident_mib
from daemon.runtimes.spec import served_models
from engines.kv_events import kv_events


async def runtime_status(node: Node, controller: RuntimeController) -> RuntimeStatus:
    """One runtime, with its processes' memory read now."""
    config = node.config_use.loaded.config
    runtime = config.runtimes.get(controller.runtime_id)
    status, record = controller.status, controller.record
    load = node.admitter.activity.load(controller.runtime_id, node.admitter.clock.monotonic_s())
    is_up = controller.state in (RuntimeState.STARTING, RuntimeState.WARMING, RuntimeState.RUNNING)
    return RuntimeStatus(
        id=controller.runtime_id,
        state=controller.state.value,
        reason=controller.ejected or controller.reason,
        since=controller.since,
        engine=runtime.engine if runtime else (record.engine if record else ""),
        build=record.build if record else "",
        models=[m.id for m in config.models if controller.runtime_id in m.runtimes()]
        or list(served_models(config, controller.runtime_id) if runtime else ()),
        unit=controller.unit_name,
        port=controller.port if is_up else 0,
        pid=status.main_pid if status and is_up else 0,
        restarts=status.restarts if status else 0,
        keep_warm=bool(runtime and runtime.keep_warm),
        hold=bool(record and record.hold),
        on=controller.computes_on
        or ("cpu" if record and not record.devices else " ".join(record.devices if record else ()))
        if is_up
        else "",
        memory_mib=await _memory_mib(node, controller) if is_up else None,
        max_concurrency=runtime.max_concurrency if runtime else 1,
        active_requests=load.active,
        queued_requests=load.waiting,
        adapters=sorted(node.adapters.usable(controller)),
        adapter_failures=node.adapters.failures(controller),
        gate=await read_gate(controller, node.backend),
        kv_events=_kv_events(controller) if is_up else None,
        log=controller.last_log,
    )


async def node_state(node: Node, hardware: HardwareState, firewall: FirewallState, started_at: str) -> NodeState:
    """The whole node."""
    use = node.config_use
    # Not the sample: it is read in no time, and is there before the first one.
    memory = read_memory() or Memory()
    return NodeState(
        node=node.preparer.node,
        version=VERSION,
        pid=os.getpid(),
        started_at=started_at,
        service_manager=node.backend.name,
        config=ConfigStatus(
            path=str(use.loaded.path),
            loaded_at=use.loaded_at,
            error=use.error,
            warnings=[str(problem) for problem in find_idle(use.loaded.config, node.preparer.node)],
        ),
        server_host=use.loaded.config.server.host,
        server_port=use.loaded.config.server.port,
        server_tls=use.loaded.config.server.tls.is_on,
        gateway_complaints=read_complaints(node),
        runtimes=[await runtime_status(node, controller) for _, controller in sorted(node.controllers.items())],
        backends=read_backends(node),
        memory_total_mib=memory.total_mib,
        memory_available_mib=memory.available_mib,
        cpu_count=node.preparer.facts.cpu_count,
        hardware=hardware,
        firewall=firewall,
        cluster=cluster_state(use.loaded.config.cluster, node.preparer.node),
    )


def read_complaints(node: Node) -> list[str]:
    """Why the gateway does not serve as the config says, by what its workers said last."""
    return node.admitter.activity.complaints(node.admitter.clock.monotonic_s())


def read_backends(node: Node) -> list[BackendStatus]:
    """Every backend, by what the gateway's workers said last."""
    config, clock = node.config_use.loaded.config, node.admitter.clock
    now_s = clock.monotonic_s()
    said = {name: node.admitter.activity.of_backend(name, now_s) for name in config.backends}
    return backend_statuses(config, node.backend_keys.stored, said, now_s=clock.wall_s())


def _kv_events(controller: RuntimeController) -> KvEventsStatus | None:
    events = kv_events(controller.probe.spec) if controller.probe is not None else None
    return KvEventsStatus(endpoint=events.endpoint, replay=events.replay) if events is not None else None


async def _memory_mib(node: Node, controller: RuntimeController) -> int | None:
    """Resident memory of all processes of the unit; shared pages count in each."""
    try:
        pids = await node.backend.read_pids(controller.unit_name)
    except LlmgwError:
        return None
    return read_resident_mib(pids)
