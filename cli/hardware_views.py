"""How hardware reads in a terminal. Pure. What is not known is `-`, never zero."""

from collections.abc import Iterable, Sequence

from cli.views import mebibytes
from core.hardware import Adapter, Card, HardwareState, Problem

CARD_COLUMNS = ("CARD", "CLASS", "PLACE", "MEMORY", "FREE", "OTHERS", "USE", "TEMP", "POWER", "AGE", "UUID")
PORT_COLUMNS = ("PORT", "STATE", "LINK", "RATE", "FABRICS", "DEVICES")


def machine_lines(state: HardwareState) -> list[str]:
    """Processor, memory, driver, disks and links that are up."""
    cpu, memory, driver = state.cpu, state.memory, state.driver
    lines = []
    if cpu is not None:
        use = "" if cpu.utilization is None else f", {cpu.utilization:.0f} % busy"
        lines.append(f"processor  {cpu.model or cpu.architecture}, {cpu.logical_cpus or '-'} CPUs{use}")
        lines.append(f"           {' '.join(cpu.features) or 'no features that engines look for'}")
    if memory is not None:
        lines.append(f"memory     {mebibytes(memory.available_mib)} available of {mebibytes(memory.total_mib)}")
    if len(state.numa) > 1:
        lines += [
            f"numa {node.number:<6}CPUs {node.cpus}, {mebibytes(node.memory_free_mib)} free of "
            f"{mebibytes(node.memory_total_mib)}"
            for node in state.numa
        ]
    if driver is not None:
        cuda = f", CUDA {driver.cuda_version}" if driver.cuda_version else ""
        flavour = f", {driver.flavour}" if driver.flavour else ""
        lines.append(f"driver     NVIDIA {driver.version}{flavour}{cuda}")
    lines += [
        f"{'disk':11}{disk.purpose}: {mebibytes(disk.free_mib)} free of {mebibytes(disk.total_mib)} "
        f"on {disk.device or '-'} ({disk.file_system or '-'}), {disk.path}"
        for disk in state.disks
    ]
    lines += [
        f"{'link':11}{link.name}: {', '.join(link.addresses) or 'no address'}"
        + (f", {link.speed_mbps} Mb/s" if link.speed_mbps else "")
        + ("" if link.carrier else ", no carrier")
        for link in state.links
        if link.up and link.kind != "loopback"
    ]
    return lines


def card_row(card: Card) -> tuple[str, ...]:
    """One card or instance under `CARD_COLUMNS`."""
    name = f"  {card.name.rpartition(' ')[2]}" if card.parent else _index(card)
    return (
        name,
        card.card_class or card.name,
        _place(card),
        mebibytes(card.memory_total_mib),
        mebibytes(card.available_mib),
        mebibytes(card.foreign_mib),
        _with(card.utilization, "%"),
        _with(card.temperature_c, "°C"),
        "-" if card.power_w is None else f"{card.power_w:.0f} W",
        "-" if card.age_s is None else f"{card.age_s:.0f} s",
        card.uuid or "-",
    )


def card_lines(card: Card) -> list[str]:
    """What is wrong with a card, and whose memory is on it."""
    name = card.uuid if card.parent else f"card {_index(card)}"
    lines = [f"  {name}:{line[1:]}" if line[2] != " " else line for line in problem_lines(card.problems)]
    lines += [
        f"  {name}: {mebibytes(process.memory_mib)} are held by {process.name or '?'}"
        f" (pid {process.pid}, {process.user or 'unknown user'})"
        for process in card.processes
        if not process.runtime and _place(card) != "divided"  # its instances say it
    ]
    lines += [f"  {name}: XID {entry.xid} {entry.count} x: {entry.meaning}" for entry in card.xids if not entry.blocks]
    return lines


def problem_lines(problems: Iterable[Problem]) -> list[str]:
    """Each problem, with the way to mend it on a line of its own."""
    lines = []
    for problem in problems:
        lines.append(f"  {problem.message}  [{problem.code}]")
        if problem.hint:
            lines.append(f"      {problem.hint}")
    return lines


def port_rows(adapters: Sequence[Adapter]) -> list[tuple[str, ...]]:
    """Every port under `PORT_COLUMNS`."""
    return [
        (
            f"{adapter.name}/{port.number}",
            port.state.lower() or "-",
            port.link_layer or "-",
            "-" if port.rate_gbps is None else f"{port.rate_gbps:g} Gb/s",
            ", ".join(adapter.fabrics) or "-",
            ", ".join(port.net_devices) or "-",
        )
        for adapter in adapters
        for port in adapter.ports
    ]


def _place(card: Card) -> str:
    if card.placeable:
        return "yes"
    return "divided" if card.mig and not card.parent and not any(p.blocks for p in card.problems) else "OUT"


def _index(card: Card) -> str:
    return str(card.index) if card.index is not None else card.pci or "-"


def _with(value: int | None, unit: str) -> str:
    return "-" if value is None else f"{value} {unit}"
