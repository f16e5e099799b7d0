"""The `Date` header: every answer says when it was made (RFC 9110 6.6.1), as one line that is rendered once a second.

An engine's own `Date` is dropped and ours said instead, as nginx does: a client of several engines would otherwise
see the clocks of several machines.
"""

from email.utils import formatdate
from time import time

_line = b""
_begin_s = _end_s = 0.0
"""The second that `_line` is of."""


def date_line() -> bytes:
    """The line of this second, with its line end."""
    global _line, _begin_s, _end_s  # noqa: PLW0603 - this process's last line
    now_s = time()
    if not _begin_s <= now_s < _end_s:  # the wall clock may have been set back
        _begin_s = now_s // 1
        _end_s = _begin_s + 1
        _line = render_date(int(_begin_s))
    return _line


def render_date(second: int) -> bytes:
    """The line of a second since the epoch."""
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode("ascii")
