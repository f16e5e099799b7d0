"""How state reads in a terminal: pure functions from the daemon's messages to words and rows.

An age or a size that is not known is `-`, never zero.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from core.api import NodeState, RuntimeStatus
from core.firewall import FirewallState

RUNTIME_COLUMNS = ("ID", "STATE", "SINCE", "ON", "ENGINE", "PORT", "MEMORY", "MODELS", "REASON")

_UNITS_OF_TIME = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def age(since: str, now: datetime) -> str:
    """`3 h` for an RFC 3339 time; `-` for none or for one that cannot be read."""
    try:
        began = datetime.fromisoformat(since)
    except ValueError:
        return "-"
    if began.tzinfo is None:
        began = began.replace(tzinfo=UTC)
    seconds = max(0, int((now - began).total_seconds()))
    for size, unit in _UNITS_OF_TIME:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return "0 s"


def mebibytes(value: int | None) -> str:
    """`512 MiB`, `12.3 GiB`, or `-`."""
    if value is None:
        return "-"
    return f"{value} MiB" if value < 1024 else f"{value / 1024:.1f} GiB"


def runtime_row(runtime: RuntimeStatus, now: datetime) -> tuple[str, ...]:
    """One runtime under `RUNTIME_COLUMNS`."""
    return (
        runtime.id,
        runtime.state,
        age(runtime.since, now),
        runtime.on or "-",
        runtime.engine,
        str(runtime.port or "-"),
        mebibytes(runtime.memory_mib),
        ", ".join(runtime.models) or "-",
        reason(runtime),
    )


def reason(runtime: RuntimeStatus) -> str:
    """Why it is in its state, and what keeps it there."""
    parts = [runtime.reason]
    if runtime.hold:
        parts.append("held: only runtime-start brings it back")
    if runtime.restarts:
        parts.append(f"restarted {runtime.restarts} x")
    return "; ".join(part for part in parts if part)


def runtime_details(runtime: RuntimeStatus, now: datetime) -> list[str]:
    """All of one runtime, a fact per line, with the engine's last lines when it has left any."""
    rows = [
        ("state", f"{runtime.state} for {age(runtime.since, now)}" + (f": {why}" if (why := reason(runtime)) else "")),
        ("models", ", ".join(runtime.models) or "-"),
        ("engine", " ".join(part for part in (runtime.engine, runtime.build) if part) or "-"),
        ("on", runtime.on or "-"),
        ("unit", runtime.unit or "-"),
        ("port", str(runtime.port or "-")),
        ("pid", str(runtime.pid or "-")),
        ("memory", mebibytes(runtime.memory_mib)),
        ("keep warm", "yes" if runtime.keep_warm else "no"),
    ]
    if runtime.gate is not None:
        gate = runtime.gate
        rows.append(("gate", f"{gate.unit}, {gate.state}, port {gate.port} before the engine's {gate.engine_port}"))
    if runtime.kv_events is not None:
        rows.append(("kv events", runtime.kv_events.endpoint))
    lines = [runtime.id, *(f"  {name:10} {value}" for name, value in rows)]
    if runtime.adapters:
        lines.append(f"  {'adapters':10} {', '.join(runtime.adapters)}")
    lines += [f"  adapter {name}: {why}" for name, why in runtime.adapter_failures.items()]
    if runtime.log:
        lines += ["  last lines of the engine:", *(f"    {line}" for line in runtime.log)]
    return lines


def node_lines(state: NodeState, now: datetime) -> list[str]:
    """The head of `llmgw status`."""
    loaded = f"{state.config.path}, in use for {age(state.config.loaded_at, now)}"
    lines = [
        f"node     {state.node}",
        f"daemon   llmgw {state.version}, pid {state.pid}, up {age(state.started_at, now)}, "
        f"units by {state.service_manager}",
        f"gateway  {base_url(state.server_host, state.server_port, tls=state.server_tls)}",
        *(f"         NOT as the config says: {complaint}" for complaint in state.gateway_complaints),
        f"config   {loaded}",
        f"memory   {mebibytes(state.memory_available_mib)} available of {mebibytes(state.memory_total_mib)}, "
        f"{state.cpu_count or '-'} CPUs",
        *([f"firewall {firewall_summary(state.firewall)}"] if state.firewall is not None else []),
    ]
    if state.config.error:
        lines.append("         the file on disk is NOT in use:")
        lines += [f"         {line}" for line in state.config.error.splitlines()]
    lines += [f"         warning: {warning}" for warning in state.config.warnings]
    return lines


def firewall_summary(state: FirewallState) -> str:
    """How the firewall stands, for the head of `llmgw status`."""
    if state.state == "guarded":
        nodes = dict.fromkeys(node for peer in state.peers if peer.addresses for node in peer.nodes)
        return f"guarded, engines are open to {', '.join((*state.networks, *nodes)) or 'this machine alone'}"
    if state.state == "off":
        return "off"
    return f"UNGUARDED: {state.reason or 'not looked at yet'}"


def base_url(host: str, port: int, *, tls: bool = False) -> str:
    """Where a client on this machine reaches a server bound to `host`."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, host)  # noqa: S104 - compared only
    if ":" in reached and not reached.startswith("["):
        reached = f"[{reached}]"
    return f"{'https' if tls else 'http'}://{reached}:{port}"


def find_runtime(runtimes: Sequence[RuntimeStatus], runtime_id: str) -> RuntimeStatus | None:
    return next((runtime for runtime in runtimes if runtime.id == runtime_id), None)


def short_source(source: str) -> str:
    """A source without its digest, which fills a terminal and tells a person nothing."""
    return source.partition("#sha256=")[0]
