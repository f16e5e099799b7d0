"""Server-sent events, taken apart and put together.

The reader takes bytes as they come, cut anywhere, with LF or CR LF, and gives whole events. It keeps only `data`:
engines that speak chat completions name no event types. A comment is given too, as None: it is how an engine that
computes for long keeps its connection alive, and whoever translates must do the same.
"""

import msgspec

from gateway.translate.failures import BadAnswer

_LARGEST_EVENT = 16 << 20
"""Bytes; an event that does not end is no event."""


class EventReader:
    """One stream."""

    def __init__(self) -> None:
        self._held = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | None]:
        """The events that are whole now. Raises: BadAnswer."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._hold(data)
            return []
        lines = (self._held + data[:end]).split(b"\n")
        self._held = b""
        self._hold(data[end:])
        found: list[bytes | None] = []
        for line in lines[:-1]:
            self._read_line(line.removesuffix(b"\r"), found)
        return found

    def _hold(self, data: bytes) -> None:
        self._held += data
        if len(self._held) + self._size > _LARGEST_EVENT:
            raise BadAnswer("an event that does not end")

    def _read_line(self, line: bytes, found: list[bytes | None]) -> None:
        if not line:
            if self._data:
                found.append(b"\n".join(self._data))
            self._data, self._size = [], 0
        elif line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            self._size += len(line)
        elif line.startswith(b":"):
            found.append(None)


def write_event(name: str, payload: dict[str, object]) -> bytes:
    """A named event, as Anthropic's streams have them."""
    return b"event: %b\ndata: %b\n\n" % (name.encode("ascii"), msgspec.json.encode(payload))


def read_data(event: bytes) -> bytes:
    """The data of one whole event, its lines joined; empty when it has none."""
    lines = (line.removesuffix(b"\r") for line in event.split(b"\n"))
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
