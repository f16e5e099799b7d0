"""The receiving end of sd_notify(3): one datagram socket per unit of `Type=notify` (or with a watchdog).

The kernel says who sent each message (SO_PASSCRED), so that only the main process is believed unless the unit says
`NotifyAccess=all`. The pings must be read before a watchdog is judged: after the supervisor itself was stopped, timers
fire before the loop has looked at its sockets, and a healthy engine would be killed.
"""

import array
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")
_MAX_BYTES = 4096
_MAX_AT_ONCE = 1024
_ANCILLARY_BYTES = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(64 * 4)


@dataclass(frozen=True, slots=True)
class Notification:
    """One message and its sender."""

    pid: int
    fields: dict[str, str]


def parse_notification(data: bytes) -> dict[str, str]:
    """`KEY=value` lines; anything else is dropped."""
    pairs = (line.partition("=") for line in data.decode("utf-8", "replace").split("\n"))
    return {key: value for key, equals, value in pairs if equals}


class NotifySocket:
    """A bound socket; whoever listens adds a reader for `fileno()` and calls `read` when it fires."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            path.unlink(missing_ok=True)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.bind(os.fspath(path))
            path.chmod(0o666)  # the unit may run as another user; the sender's pid is what counts
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> list[Notification]:
        """Everything that waits, unless somebody sends faster than we read: then the loop's turn comes first."""
        found: list[Notification] = []
        while len(found) < _MAX_AT_ONCE:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(_MAX_BYTES, _ANCILLARY_BYTES)
            except (BlockingIOError, InterruptedError):
                return found
            found.append(Notification(_read_ancillary(ancillary), parse_notification(data)))
        return found

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)


def _read_ancillary(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The sender's pid (0: not told). Descriptors that came along are closed: that is what sd_notify_barrier awaits."""
    pid = 0
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            pid = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0]
        elif level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors = array.array("i")
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
            for descriptor in descriptors:
                os.close(descriptor)
    return pid
