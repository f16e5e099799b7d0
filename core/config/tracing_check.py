"""What can be wrong with the section `tracing`. Pure."""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from core.config.problem import Problem
from core.config.schema import Config

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
_OUR_HEADERS = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection"})


def check_tracing(config: Config) -> Iterable[Problem]:
    """An endpoint that can be asked, and headers that can be sent."""
    endpoint = config.tracing.endpoint
    if endpoint:
        reason = _fault_of_url(endpoint)
        if reason:
            yield Problem("tracing.endpoint", reason, hint="as in http://127.0.0.1:4318")
    for name, value in config.tracing.headers.items():
        if not _HEADER_NAME.fullmatch(name):
            yield Problem(f"tracing.headers.{name}", "is no name of a header")
        elif name.lower() in _OUR_HEADERS:
            yield Problem(f"tracing.headers.{name}", "is said by the gateway itself", hint="remove it")
        if not value.isascii() or not value.isprintable():
            yield Problem(f"tracing.headers.{name}", "has characters that no header can carry")


def _fault_of_url(url: str) -> str:
    """Why nothing can be sent to it; empty: it can. A URL is shown in logs, so no secret may stand in one."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is no URL: {error}"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "is no URL of a collector"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "is no URL: it has spaces or characters that no URL has"
    if parts.username or parts.password or parts.query or parts.fragment:
        return "has more than scheme, host, port and path: credentials belong in tracing.headers"
    return ""
