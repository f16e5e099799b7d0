"""The node's telemetry and its doctor's report, as leaders and dashboards of the reference system read them. Pure.

Shares (`cpu.utilization`, `memory.utilization`) are 0 to 1; a card's `utilization` is nvidia-smi's own percentage.
What is not known is null. `ageSeconds` says how old a value is, which readers of the reference system ignore.
"""

from collections.abc import Callable, Iterable, Sequence

from core.api import NodeState
from core.hardware import Card, DoctorReport, Finding, HardwareState

Json = dict[str, object]


def describe_telemetry(state: NodeState) -> Json | None:
    """Memory, processors and cards; null when the daemon could not read the memory."""
    memory = _memory(state)
    if memory is None:
        return None
    hardware = state.hardware or HardwareState()
    cpu = hardware.cpu
    busy = cpu.utilization if cpu else None
    return {
        "sampledAt": hardware.sampled_at or None,
        "cpu": {
            "logicalCpus": state.cpu_count,
            "model": (cpu.model if cpu else "") or None,
            "utilization": None if busy is None else round(busy / 100, 4),
        },
        "memory": memory,
        "gpu": _gpu(hardware.cards),
    }


def _memory(state: NodeState) -> Json | None:
    total, available = state.memory_total_mib, state.memory_available_mib
    if total is None or available is None or total <= 0:
        return None
    used = round((total - available) / total, 4)
    return {
        "totalBytes": total << 20,
        "availableBytes": available << 20,
        "freeBytes": available << 20,
        "usedBytes": (total - available) << 20,
        "utilization": used,
        "pressureUtilization": used,
        "source": "linux-memavailable",
    }


def _gpu(cards: Sequence[Card]) -> Json | None:
    """Whole cards that the driver knows; instances of one would count its memory twice."""
    known = [card for card in cards if card.uuid and not card.parent]
    if not known:
        return None
    used = [card.utilization for card in known if card.utilization is not None]
    return {
        "vendor": "nvidia",
        "backend": "nvidia-smi",
        "devices": [_device(card) for card in known],
        "utilization": round(sum(used) / len(used), 1) if used else None,
        "memoryUsedMb": _over(sum, (card.memory_used_mib for card in known)),
        "memoryTotalMb": _over(sum, (card.memory_total_mib for card in known)),
        "temperatureC": _over(max, (card.temperature_c for card in known)),
        "powerDrawW": _over(sum, (card.power_w for card in known)),
    }


def _device(card: Card) -> Json:
    return {
        "index": card.index,
        "uuid": card.uuid,
        "name": card.name,
        "class": card.card_class,
        "utilization": card.utilization,
        "memoryUsedMb": card.memory_used_mib,
        "memoryTotalMb": card.memory_total_mib,
        "temperatureC": card.temperature_c,
        "powerDrawW": card.power_w,
        "performanceState": card.performance_state or None,
        "smClockMhz": card.sm_clock_mhz,
        "memoryClockMhz": card.memory_clock_mhz,
        "placeable": card.placeable,
        "problems": [problem.code for problem in card.problems],
        "ageSeconds": card.age_s,
    }


def _over(fold: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    """Over the known values; null when there is none."""
    known = [value for value in values if value is not None]
    return fold(known) if known else None


def describe_doctor(report: DoctorReport) -> Json:
    """`GET /gateway/doctor`."""
    blockers = [_finding(finding) for finding in report.findings if finding.status == "blocks"]
    warnings = [_finding(finding) for finding in report.findings if finding.status == "warning"]
    actions = [finding.remedy for finding in report.findings if finding.remedy]
    return {
        "ok": report.ok,
        "complete": report.complete,
        "generatedAt": report.generated_at,
        "node": report.node,
        "summary": {"blockers": report.blockers, "warnings": report.warnings, "actions": len(actions)},
        "blockers": blockers,
        "warnings": warnings,
        "actions": actions,
        "next": actions[0] if actions else None,
        "findings": [_finding(finding) for finding in report.findings],
    }


def _finding(finding: Finding) -> Json:
    return {
        "check": finding.check,
        "status": finding.status,
        "found": finding.found,
        "remedy": finding.remedy or None,
    }
