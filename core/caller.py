"""How the gateway tells an engine's gate for whom a request is: two header fields that no client can set.

A gate that keeps callers' work apart (ComfyUI's) must know one caller from another, and nothing else about them: it
sees a mark that is made of the name of the caller's key, so that a key that is made anew under its old name finds its
work again. The fields never cross the gateway from outside (`core/http/heads.py`), and a gate believes them only
together with its runtime's key, which the gateway alone can read.
"""

import re
from hashlib import sha256

CALLER = "x-llmgw-caller"
"""Whose request it is: `caller_mark`."""
HANDLE = "x-llmgw-handle"
"""The gateway's own id of the request (`x-request-id`): what a gate starts for it can be asked for by this name."""

_MARK = re.compile(r"[a-z0-9-]{1,64}")
_HANDLE = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
"""As the gateway takes request ids."""
_SALT = b"llmgw caller\0"


def caller_mark(key_name: str) -> str:
    """The mark of a caller with a key of this name; the empty name is everybody who needs no key."""
    return f"c-{sha256(_SALT + key_name.encode('utf-8', 'replace')).hexdigest()[:32]}"


def caller_lines(key_name: str, request_id: str) -> bytes:
    """The header lines of a request, each ended by CR LF."""
    return f"{CALLER}: {caller_mark(key_name)}\r\n{HANDLE}: {request_id}\r\n".encode("latin-1")


def is_mark(text: str) -> bool:
    """Whether this can be a caller's mark: safe as a folder's name."""
    return _MARK.fullmatch(text) is not None


def is_handle(text: str) -> bool:
    return _HANDLE.fullmatch(text) is not None
