"""The `Date` header: every answer says when it was made (RFC 9110 6.6.1), as one line that is rendered once a second.

An engine's own `Date` is dropped and ours said instead, as nginx does: a client of several engines would otherwise
see the clocks of several machines.
"""

from email.utils import formatdate
from functools import lru_cache
from time import time


def date_line() -> bytes:
    """The line of this second, with its line end."""
    return render_date(int(time()))


@lru_cache(maxsize=4)
def render_date(second: int) -> bytes:
    """The line of a second since the epoch."""
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode("ascii")
