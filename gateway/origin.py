"""What a web page in some browser may do to the admin class: nothing, unless it is our own.

A page on the internet can make a browser send requests to a gateway on loopback, and with a name that it rebinds
to 127.0.0.1 it can read the answers too. Keys do not help where loopback is open. So requests to `/gateway/*` that
a browser sends from elsewhere, and on a loopback bind every request whose `Host` is not this machine's own, are
refused. Command-line clients send no `Origin` and name the address that they connect to: they never notice.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from gateway.auth import is_loopback
from gateway.errors import ApiError


@dataclass(frozen=True, slots=True)
class BrowserFacts:
    """The headers that browsers set and pages cannot forge; empty when absent."""

    host: str
    origin: str
    fetch_site: str


def check_origin(facts: BrowserFacts, *, loopback: bool) -> None:
    """Refuse a foreign page's request to the admin class. Raises: ApiError (403 `admin_origin_denied`)."""
    reason = find_origin_fault(facts, loopback=loopback)
    if reason:
        raise ApiError(403, "admin_origin_denied", "This request may not come from a web page of another origin.")


def find_origin_fault(facts: BrowserFacts, *, loopback: bool) -> str:
    """Why the request is refused; empty when it is not."""
    host = facts.host.strip().lower()
    if any(mark in host for mark in "@/?#\\"):
        return "the Host header is not a host"
    if loopback and host and not is_loopback(host):
        return "the Host header names another machine"
    if facts.fetch_site.lower() in ("cross-site", "same-site"):
        return "a page of another site asks"
    return _find_foreign_origin(facts.origin.strip(), host) if facts.origin else ""


def _find_foreign_origin(origin: str, host: str) -> str:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return "the Origin header cannot be read"
    if parts.scheme not in ("http", "https") or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return "the Origin header is not an origin"
    return "" if parts.netloc.lower() == host else "a page of another origin asks"
