"""The headers of a request that the gateway looks at, read in one pass.

Reading them one by one through the framework would cost more than the whole authentication.
"""

from collections.abc import Iterable

from gateway.origin import BrowserFacts

_NAMES = frozenset({b"authorization", b"x-api-key", b"x-request-id", b"content-type", b"content-encoding"})
_BROWSERS_NAMES = frozenset({b"host", b"origin", b"sec-fetch-site"})


def read_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The fields that every inference request is judged by; of a repeated one the first counts."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _NAMES and name not in found:
            found[name] = value
    return found


def read_browser_facts(headers: Iterable[tuple[bytes, bytes]]) -> BrowserFacts:
    """The fields that tell what page of what site asks."""
    found: dict[bytes, str] = {}
    for name, value in headers:
        if name in _BROWSERS_NAMES:
            found.setdefault(name, value.decode("latin-1"))
    return BrowserFacts(found.get(b"host", ""), found.get(b"origin", ""), found.get(b"sec-fetch-site", ""))
