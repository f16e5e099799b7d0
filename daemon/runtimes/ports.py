"""Which port a runtime gets. The choice is pure; whether a port can be bound right now is asked of the kernel."""

import socket
from collections.abc import Callable, Collection

from core.errors import RefusedError


class NoPortFree(RefusedError):
    """Every port of the range is taken."""

    code = "ports_exhausted"


class PortTaken(RefusedError):
    """The port that the config fixes belongs to somebody else."""

    code = "port_taken"


def choose_port(
    *,
    fixed: int | None,
    previous: int | None,
    span: tuple[int, int],
    taken: Collection[int],
    is_free: Callable[[int], bool],
) -> int:
    """The fixed port, or the one this runtime had before, or the lowest free one of the range.

    `taken` are the ports of other runtimes, running or about to. Raises: PortTaken, NoPortFree.
    """
    if fixed is not None:
        if not is_free(fixed):
            raise PortTaken(f"port {fixed} is in use by another program", hint=f"ss -ltnp 'sport = :{fixed}'")
        return fixed
    low, high = span
    first = [previous] if previous is not None and low <= previous <= high else []
    candidates: list[int] = [*first, *range(low, high + 1)]
    for port in candidates:
        if port not in taken and is_free(port):
            return port
    raise NoPortFree(f"no port of {low}-{high} is free for another runtime", hint="widen ports.backends")


def is_bindable(port: int, host: str = "127.0.0.1") -> bool:
    """Whether an engine could listen there now. TIME_WAIT does not count, as engines set SO_REUSEADDR too."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
