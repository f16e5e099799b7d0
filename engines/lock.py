"""What an environment is asked for, and the lock that comes of pip's answer. Pure.

A lock is a requirements file with the digest of everything. Whatever has none, or would come from elsewhere than the
index, makes no lock: then nothing is installed.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import DependencyError
from engines.machine import Machine

_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[A-Za-z0-9._, -]*\])?\s*([(<>=!~][A-Za-z0-9.,*+!<>=~() ]*)?(;.*)?"
)


class LockInvalid(DependencyError):
    """pip's report cannot be made into a lock: something would be installed without a digest."""

    code = "engine_lock_invalid"


class RequirementsRefused(DependencyError):
    """A source tree's requirements file has something in it that is no requirement by name."""

    code = "engine_requirements_refused"


@dataclass(frozen=True, slots=True)
class Asked:
    """What an environment is made of: one wheel and what it needs, or what a file asks for."""

    name: str
    version: str
    path: Path
    """The wheel, or the file of requirements."""
    date: str = ""
    """The day of the index that counts; empty: today."""
    sha256: tuple[str, ...] = ()
    """Digests of the wheel; none: `path` is a file of requirements."""
    names: tuple[str, ...] = ()
    """Of the requirements in the file: each must be in the lock."""
    leave_out: tuple[str, ...] = ()
    stands_for: str = ""
    """As in `engines.recipe.Environment`."""
    index: str = ""
    """A second index."""
    pins: str = ""
    """What its lock is called in a mirror: it is good for one build, one platform and one Python."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """What pip is to resolve."""
        return (str(self.path),) if self.sha256 else ("--requirement", str(self.path))

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def build_lock(report: bytes, asked: Asked) -> str:
    """A requirements file with the digest of everything. Raises: LockInvalid."""
    lines, locked = [], set()
    left_out = {folded(name) for name in asked.leave_out}
    try:
        for item in json.loads(report)["install"]:
            name, version = str(item["metadata"]["name"]), str(item["metadata"]["version"])
            digest = str(item["download_info"]["archive_info"]["hashes"]["sha256"])
            if folded(name) in left_out:
                continue
            is_pinned = digest in asked.sha256
            if item.get("is_direct") and not is_pinned:
                raise LockInvalid(f"{asked} would take {name} from an address of its own, not from the index")
            lines.append(f"{name}{f' @ {asked.path.as_uri()}' if is_pinned else f'=={version}'} --hash=sha256:{digest}")
            if is_pinned or not asked.sha256:
                locked.add(folded(name))
    except (ValueError, KeyError, TypeError) as error:
        raise LockInvalid(f"pip's report for {asked} is not understood: {error!r}") from error
    missing = [name for name in asked.names or (asked.name,) if folded(name) not in locked]
    if missing:
        what = "with its pinned digest" if asked.sha256 else f"for {asked}"
        raise LockInvalid(f"pip's report does not name {', '.join(missing)} {what}")
    return "\n".join(sorted(lines)) + "\n"


def pins_name(asked: Asked, variant: str, machine: Machine) -> str:
    """What the lock of this build is called in a mirror."""
    python = ".".join(str(number) for number in machine.python)
    return f"{asked.name}-{asked.version}-{variant}-{machine.platform}-py{python}.lock"


def pins_of(lock: str, asked: Asked) -> str:
    """The lock as it lies beside the wheels of a mirror: without the path that the pinned wheel had here."""
    at_hand = f" @ {asked.path.as_uri()} "
    return "".join(line.replace(at_hand, f"=={asked.version} ") for line in lock.splitlines(keepends=True))


def read_constraints(pins: str, asked: Asked) -> str:
    """For pip: the versions of everything but of the wheel that is at hand."""
    versions = [line.partition(" ")[0] for line in pins.splitlines()]
    ours = [one for one in versions if not asked.sha256 or folded(one.partition("==")[0]) != folded(asked.name)]
    return "".join(f"{version}\n" for version in ours)


def require_pinned(lock: str, pins: str, asked: Asked) -> None:
    """Whether all that is locked is what the mirror was filled with. Raises: LockInvalid."""
    other = sorted(set(pins_of(lock, asked).splitlines()) - set(pins.splitlines()))
    if other:
        raise LockInvalid(
            f"the mirror has another {other[0].partition(' ')[0]} than the one that it was filled with for {asked}",
            hint=f"fill it again (llmgw engine mirror), or take {asked.pins} away: then the newest that fit are taken",
        )


def read_requirements(text: str, *, what: str) -> list[str]:
    """The requirements of a file, one each, without comments.

    Options (other indexes), addresses and paths would bring something from elsewhere. Raises: RequirementsRefused.
    """
    lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()]
    for line in filter(None, lines):
        if not _LINE.fullmatch(line):
            raise RequirementsRefused(
                f"{what} is no list of requirements by name: {line[:120]!r}",
                hint="name a tree of your own instead (engines.comfyui.dir and .python)",
            )
    return [line for line in lines if line]


def narrow(lines: Sequence[str], also: Sequence[str]) -> list[str]:
    """Both together. What is asked for in any version gives way to a version: pip calls two that nobody has a conflict,
    and one by its name."""
    pinned = set(requirement_names(also))
    return [line for line in lines if folded(line) not in pinned] + list(also)


def requirement_names(lines: Sequence[str]) -> list[str]:
    """Of the requirements that hold on every machine. One with a marker may hold for others only."""
    matches = (_LINE.fullmatch(line) for line in lines if ";" not in line)
    return list(dict.fromkeys(folded(match["name"]) for match in matches if match))


def folded(name: str) -> str:
    """As the index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()
