"""Names of the generated units: from a runtime's id to a file name, and back.

A name must be safe as a file name, as a unit name and typed into a shell, must differ for different ids, and must
fit. Letters, digits, `.`, `-` and `_` stand for themselves, every other byte becomes `_` and two hex digits
(`meta/llama` -> `llmgw-engine-meta_2fllama.service`), and so does a `_` that would read as one of these. Systemd's
own `\\x2f` and a colon were tried: a backslash means something to shells and to some directives, and
`systemd-analyze verify` takes what follows a colon for an alias. An id too long for a file name keeps its beginning
and gets `_h` and a hash.
"""

import hashlib
import re

from core.errors import UsageError

ENGINE_PREFIX = "llmgw-engine-"
GATE_PREFIX = "llmgw-gate-"
SUFFIX = ".service"

MAX_SLUG = 150
"""Characters of the escaped id: of a file name's 255 bytes that leaves 80 to what others put around the name."""

_ESCAPED = re.compile(rb"[^A-Za-z0-9._-]|_(?=[0-9a-f]{2}|h[0-9a-f]{32}\Z)")
_HASHED = re.compile(r".*_h[0-9a-f]{32}")
_SLUG = re.compile(r"[A-Za-z0-9._-]+")


class RuntimeIdRefused(UsageError):
    """An id that cannot name a unit."""

    code = "runtime_id_refused"


def engine_unit_name(runtime_id: str) -> str:
    """The engine's unit of a runtime. Raises: RuntimeIdRefused."""
    return f"{ENGINE_PREFIX}{_slug(runtime_id)}{SUFFIX}"


def gate_unit_name(runtime_id: str) -> str:
    """The gate's unit of a runtime. Raises: RuntimeIdRefused."""
    return f"{GATE_PREFIX}{_slug(runtime_id)}{SUFFIX}"


def is_generated(name: str) -> bool:
    """Whether a unit of this name is one of ours: nothing else is ever read, written or watched."""
    return _slug_of(name) is not None


def runtime_id_of(name: str) -> str | None:
    """The runtime whose unit this is; None for a foreign name, and for a shortened one: its record has the id."""
    slug = _slug_of(name)
    if slug is None or _HASHED.fullmatch(slug):
        return None
    data = re.sub(rb"_([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), slug.encode())
    try:
        runtime_id = data.decode()
    except UnicodeDecodeError:
        return None
    return runtime_id if _escape(runtime_id) == slug else None


def _slug(runtime_id: str) -> str:
    if not runtime_id:
        raise RuntimeIdRefused("a runtime needs an id")
    slug = _escape(runtime_id)
    if len(slug) <= MAX_SLUG:
        return slug
    mark = "_h" + hashlib.sha256(runtime_id.encode()).hexdigest()[:32]
    return slug[: MAX_SLUG - len(mark)] + mark


def _escape(runtime_id: str) -> str:
    try:
        data = runtime_id.encode()
    except UnicodeEncodeError as error:
        raise RuntimeIdRefused(f"the runtime id {runtime_id!r} is not Unicode text") from error
    return _ESCAPED.sub(lambda found: f"_{found[0][0]:02x}".encode(), data).decode()


def _slug_of(name: str) -> str | None:
    for prefix in (ENGINE_PREFIX, GATE_PREFIX):
        if name.startswith(prefix) and name.endswith(SUFFIX):
            slug = name[len(prefix) : -len(SUFFIX)]
            if len(slug) <= MAX_SLUG and _SLUG.fullmatch(slug):
                return slug
    return None
