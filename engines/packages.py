"""Where packages come from: pip's own configuration, an index, or a folder of wheels. Pure.

A folder may lie on this machine or behind a web server, which lists it as a page (nginx: `autoindex on`) or has an
`index.html` in it.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from core.errors import ConfigError

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class MirrorInvalid(ConfigError):
    """A mirror that cannot be one."""

    code = "mirror_invalid"


@dataclass(frozen=True, slots=True)
class Packages:
    """At most one of `folder`, `page` and `index` is given; none: pip's own configuration."""

    folder: Path | None = None
    """Wheels on this machine."""
    page: str = ""
    """The address of a folder of wheels."""
    index: str = ""
    """The address of an index; may hold a password."""
    setting: str = "engines.mirror"
    """What names it in the config."""
    shown: str = ""
    """What it is called in an error, where it is not what pip is told."""
    keeps_pips: bool = False
    """Whether other places in pip's own configuration stay: the index stands for the one in it."""

    @property
    def is_given(self) -> bool:
        return bool(self.folder or self.page or self.index)

    @property
    def place(self) -> str:
        """Folder or address, without a password."""
        return str(self.folder) if self.folder else self.page or re.sub(r"//[^/@]*@", "//…@", self.index)

    def __str__(self) -> str:
        """In an error's words."""
        return self.shown or (f"the mirror {self.place}" if self.is_given else "the package index")


def parse_packages(text: str) -> Packages:
    """`engines.mirror`: a folder of wheels, or an index. Raises: MirrorInvalid."""
    if not text:
        return Packages()
    if text.startswith(("/", "file:///")):
        return Packages(folder=Path(text.removeprefix("file://")))
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
    except ValueError:
        parts, host = urlsplit(""), ""
    if not host or parts.scheme not in ("https", "http") or (parts.scheme == "http" and host not in _LOOPBACK):
        raise MirrorInvalid(
            "engines.mirror must be an absolute path or an https:// index URL",
            hint="for instance /srv/wheels or https://pypi.example.org/simple",
        )
    return Packages(index=text)
