"""Status lines, rendered once."""

from http import HTTPStatus

_REASONS = {status.value: status.phrase for status in HTTPStatus}


class _StatusLines(dict[int, bytes]):
    """Lines for the statuses that have no name are made when first needed."""

    def __missing__(self, status: int) -> bytes:
        line = f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}\r\n".encode("ascii")
        if 100 <= status <= 999:
            self[status] = line
        return line


STATUS_LINES = _StatusLines()
BODILESS = frozenset({204, 304})
"""Final statuses that never have a body."""
