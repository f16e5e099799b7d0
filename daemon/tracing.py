"""Where the gateway sends traces: the config's section as the gateway needs it, and the headers in a file of their own.

Headers hold credentials. The route table is read by whoever may read the daemon's socket, and kept on the gateway's
disk, so they do not stand in it: they lie beside the engines' keys, for root and the gateway's group.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from core.api import TracingPolicy
from core.config.schema import Tracing
from core.errors import LlmgwError
from core.files import ensure_directory, write_atomic
from core.log import get_logger
from core.paths import Layout

_TRACES = "/v1/traces"
_log = get_logger("daemon.tracing")


def describe_tracing(tracing: Tracing, layout: Layout) -> TracingPolicy:
    """For the route table. Pure."""
    if not tracing.endpoint:
        return TracingPolicy()
    is_bare = urlsplit(tracing.endpoint).path in ("", "/")
    text = _render(tracing.headers)
    return TracingPolicy(
        endpoint=tracing.endpoint.rstrip("/") + _TRACES if is_bare else tracing.endpoint,
        headers_file=str(headers_path(layout)) if text else "",
        headers_sha256=hashlib.sha256(text.encode()).hexdigest() if text else "",
        sample_ratio=tracing.sample_ratio,
        service_name=tracing.service_name,
    )


def headers_path(layout: Layout) -> Path:
    """Where the headers lie. Engines' keys there end in `.key`."""
    return layout.keys / "tracing.headers"


def keep_headers(tracing: Tracing, layout: Layout, *, gid: int) -> None:
    """Write the file, or remove it where there is nothing to hide. A disk that refuses is told, and hides no node."""
    path, text = headers_path(layout), _render(tracing.headers) if tracing.endpoint else ""
    try:
        if text:
            ensure_directory(path.parent, mode=0o750, gid=gid)
            write_atomic(path, text, mode=0o640, gid=gid)
        else:
            path.unlink(missing_ok=True)
    except (LlmgwError, OSError) as error:
        _log.error("tracing_headers_not_kept", error=str(error))


def _render(headers: Mapping[str, str]) -> str:
    return json.dumps(headers, sort_keys=True) if headers else ""
