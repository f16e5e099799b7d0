"""Starting what is measured, waiting until it serves, and reading what it costs.

CPU time is that of the whole process tree: an arbiter's share, and children's that ended, are part of the price.
"""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """A port that nothing listens on at this moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def running(argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> Iterator[int]:
    """Run a command in a session of its own for the length of the block; gives its pid."""
    with log.open("wb") as output:
        process = subprocess.Popen(argv, env=dict(env), stdout=output, stderr=output, start_new_session=True)
    try:
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_serving(port: int, path: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> None:
    """Ask until the answer is 200. Raises: TimeoutError with the last answer."""
    until = time.monotonic() + timeout_s
    last = "nothing listens"
    while time.monotonic() < until:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("POST", path, body, dict(headers))
            reply = connection.getresponse()
            last = f"{reply.status} {reply.read()[:200]!r}"
            if reply.status == 200:
                return
        except (OSError, http.client.HTTPException) as error:
            last = str(error)
        finally:
            connection.close()
        time.sleep(0.1)
    raise TimeoutError(f"port {port} does not serve: {last}")


def process_tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(word) for word in children.read_text().split()]
    return found


def cpu_s(pid: int) -> float:
    """User and system time of a process tree so far, its reaped children included."""
    ticks = 0
    for member in process_tree(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / _TICKS_PER_S


def pss_kib(pid: int) -> int:
    """Memory of a process tree; what several share is counted once."""
    total = 0
    for member in process_tree(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{member}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total
