"""Makes the dashboard of its three files, and the policy under which a browser shows it.

One page, so that one route serves it whole. Style and script stand in it and are named in the policy by their digests:
nothing else may run, load or be sent anywhere, whatever a name or a reason that the page shows contains.
"""

from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parent


class Page(NamedTuple):
    """What is served."""

    html: bytes
    policy: str


def build_page() -> Page:
    """Read and join the files; called once."""
    html = (_FOLDER / "page.html").read_text("utf-8")
    parts = {name: (_FOLDER / name).read_text("utf-8") for name in ("page.css", "page.js")}
    for name, text in parts.items():
        html = html.replace(f"/* {name} */", text)
    policy = (
        "default-src 'none'",
        f"script-src {_digest(parts['page.js'])}",
        f"style-src {_digest(parts['page.css'])}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
    return Page(html.encode("utf-8"), "; ".join(policy))


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"
