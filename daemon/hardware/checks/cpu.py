"""Does the processor show what engines need to be fast? A virtual machine's default model often hides it."""

from collections.abc import Iterator

from core.hardware import Finding
from daemon.hardware.checks.finding import ok, warning
from daemon.hardware.facts import Facts

_WANTED = ("avx", "avx2", "fma", "f16c")


def check(facts: Facts) -> Iterator[Finding]:
    cpu = facts.hardware.cpu
    if cpu is None:
        yield warning("processor", "/proc/cpuinfo cannot be read", "mount /proc")
        return
    missing = [name for name in _WANTED if name not in cpu.features]
    if cpu.architecture != "x86_64" or not missing:
        yield ok("processor", f"{cpu.model or cpu.architecture}, {cpu.logical_cpus or '?'} CPUs")
        return
    cost = "models on the CPU run about 7 times slower" if "avx" in missing else "models on the CPU run at half speed"
    remedy = "use a build for old processors, or a GPU"
    if cpu.hypervisor:
        remedy = "give the virtual machine the host's CPU model (libvirt: host-passthrough; Proxmox: cpu: host)"
    yield warning("processor", f"{cpu.model or 'the processor'} shows no {', '.join(missing)}: {cost}", remedy)
