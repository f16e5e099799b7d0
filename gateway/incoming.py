"""The headers of a request that the gateway looks at, read in one pass.

Reading them one by one through the framework would cost more than the whole authentication.
"""

from collections.abc import Iterable, Mapping

from gateway.origin import BrowserFacts
from gateway.turns import INTERACTIVE, STANDARD

_CLASS_NAMES = (b"x-llmgw-request-class", b"x-lloom-request-class")
_NAMES = frozenset(
    {b"authorization", b"x-api-key", b"x-request-id", b"content-type", b"content-encoding", *_CLASS_NAMES}
)
_BROWSERS_NAMES = frozenset({b"host", b"origin", b"sec-fetch-site"})


def read_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The fields that every inference request is judged by; of a repeated one the first counts."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _NAMES and name not in found:
            found[name] = value
    return found


def read_class(fields: Mapping[bytes, bytes]) -> int:
    """`gateway.turns.INTERACTIVE` where a client says that a person waits, else `STANDARD`. Our own header counts."""
    for name in _CLASS_NAMES:
        value = fields.get(name)
        if value is not None:
            return INTERACTIVE if value.strip().lower() == b"interactive" else STANDARD
    return STANDARD


def read_browser_facts(headers: Iterable[tuple[bytes, bytes]]) -> BrowserFacts:
    """The fields that tell what page of what site asks."""
    found: dict[bytes, str] = {}
    for name, value in headers:
        if name in _BROWSERS_NAMES:
            found.setdefault(name, value.decode("latin-1"))
    return BrowserFacts(found.get(b"host", ""), found.get(b"origin", ""), found.get(b"sec-fetch-site", ""))
