"""Processors: model, the features that engines choose their kernels by, how busy they are, and NUMA nodes."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from core.hardware import Cpu, NumaNode
from daemon.hardware.sysfs import list_names, read_text
from engines.machine import parse_cpu_features

CPUINFO = Path("/proc/cpuinfo")
STAT = Path("/proc/stat")
NODES = Path("/sys/devices/system/node")

_TELLING = (
    *("sse4_2", "f16c", "fma", "avx", "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16"),
    *("amx_tile", "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme"),
)
"""Of a hundred flags, those that decide how fast a model runs."""

_NODE_MEMORY = re.compile(r"(MemTotal|MemFree):\s+(\d+) kB")


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Ticks of all processors since boot."""

    busy: int
    total: int


def parse_cpu(cpuinfo: str, architecture: str) -> Cpu:
    fields: dict[str, str] = {}
    processors = 0
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        name = key.strip()
        processors += name == "processor"
        fields.setdefault(name, value.strip())
    features = parse_cpu_features(cpuinfo)
    return Cpu(
        model=fields.get("model name") or fields.get("Model") or fields.get("CPU part", ""),
        architecture=architecture,
        logical_cpus=processors or None,
        features=[name for name in _TELLING if name in features],
        hypervisor="hypervisor" in features,
    )


def parse_times(stat: str) -> CpuTimes | None:
    """The first line of /proc/stat: user nice system idle iowait irq softirq steal …; guest time is in user already."""
    words = stat.partition("\n")[0].split()
    if len(words) < 6 or words[0] != "cpu" or not all(word.isdecimal() for word in words[1:9]):
        return None
    ticks = [int(word) for word in words[1:9]]
    idle = ticks[3] + ticks[4]
    return CpuTimes(busy=sum(ticks) - idle, total=sum(ticks))


def utilization(before: CpuTimes | None, after: CpuTimes | None) -> float | None:
    """Percent between two readings; None for the first."""
    if before is None or after is None or after.total <= before.total:
        return None
    share = (after.busy - before.busy) / (after.total - before.total)
    return round(100 * min(1.0, max(0.0, share)), 1)


def read_cpu(cpuinfo: Path = CPUINFO) -> Cpu | None:
    text = read_text(cpuinfo)
    return parse_cpu(text, os.uname().machine) if text else None


def read_times(stat: Path = STAT) -> CpuTimes | None:
    return parse_times(read_text(stat))


def read_numa(nodes: Path = NODES) -> tuple[NumaNode, ...]:
    return tuple(_node(nodes / name) for name in list_names(nodes) if re.fullmatch(r"node\d+", name))


def _node(path: Path) -> NumaNode:
    memory = {name: int(kib) // 1024 for name, kib in _NODE_MEMORY.findall(read_text(path / "meminfo"))}
    return NumaNode(
        number=int(path.name.removeprefix("node")),
        cpus=read_text(path / "cpulist"),
        memory_total_mib=memory.get("MemTotal"),
        memory_free_mib=memory.get("MemFree"),
    )
