"""sd_notify: telling the service manager that we are ready, alive, reloading or stopping.

The protocol is one datagram of `NAME=value` lines to `$NOTIFY_SOCKET` (sd_notify(3)). Without that variable
every call is a no-op, so programs call it unconditionally.
"""

import os
import socket
import time
from collections.abc import Mapping


class Notifier:
    """Sends to one notify socket. Never blocks and never raises: a lost notification must not stop a program."""

    def __init__(self, address: str | None, watchdog_s: float = 0.0) -> None:
        self._address = ("\0" + address[1:] if address.startswith("@") else address) if address else None
        self.watchdog_s = watchdog_s
        """How often the service manager wants to hear from us; 0: never."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Notifier":
        """Read `NOTIFY_SOCKET` and `WATCHDOG_USEC` (only when `WATCHDOG_PID` is ours or unset)."""
        usec = environ.get("WATCHDOG_USEC", "0")
        ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        return cls(environ.get("NOTIFY_SOCKET") or None, int(usec) / 1e6 if ours and usec.isdigit() else 0.0)

    def ready(self, status: str = "") -> None:
        self._send("READY=1" + (f"\nSTATUS={_line(status)}" if status else ""))

    def status(self, text: str) -> None:
        self._send(f"STATUS={_line(text)}")

    def reloading(self) -> None:
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sock:
                sock.sendto(text.encode(), self._address)
        except OSError:
            return


def _line(text: str) -> str:
    return " ".join(text.split())
