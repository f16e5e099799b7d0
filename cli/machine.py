"""What a first config needs to know of this machine. Reading only; what cannot be read is None."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts that a person wants to see before they trust the first config."""

    hostname: str
    cpu_count: int
    memory_mib: int | None
    nvidia_cards: int
    port_free: bool


def read_machine(host: str, port: int, proc: Path = Path("/proc")) -> Machine:
    return Machine(
        hostname=socket.gethostname(),
        cpu_count=len(os.sched_getaffinity(0)),
        memory_mib=read_memory_mib(proc / "meminfo"),
        nvidia_cards=len(list((proc / "driver/nvidia/gpus").glob("*"))),
        port_free=is_port_free(host, port),
    )


def read_memory_mib(meminfo: Path) -> int | None:
    """MemTotal of proc(5)'s meminfo, which counts in KiB."""
    try:
        text = meminfo.read_text("ascii", "replace")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("MemTotal:"):
            amount = line.split()[1]
            return int(amount) // 1024 if amount.isdigit() else None
    return None


def is_port_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    try:
        listen_on(host, port).close()
    except OSError:
        return False
    return True


def listen_on(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises: OSError (in use, not permitted, not an address of ours)."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        # Without it a port whose last connections linger in TIME_WAIT cannot be bound; a live listener still refuses.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener
