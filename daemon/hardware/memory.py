"""The machine's memory, from /proc/meminfo, which counts in KiB and calls it kB."""

from pathlib import Path

from core.hardware import Memory

MEMINFO = Path("/proc/meminfo")


def parse_meminfo(text: str) -> Memory:
    """`MemAvailable` is the kernel's own estimate of what can be had without swapping; free memory is not."""
    fields: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdecimal():
            fields[name] = int(words[0]) // 1024
    return Memory(
        total_mib=fields.get("MemTotal"),
        available_mib=fields.get("MemAvailable"),
        swap_total_mib=fields.get("SwapTotal"),
        swap_free_mib=fields.get("SwapFree"),
    )


def read_memory(path: Path = MEMINFO) -> Memory | None:
    """None where the kernel does not say."""
    try:
        return parse_meminfo(path.read_text("ascii", "replace"))
    except OSError:
        return None
