"""What engine-check found of an installed build, kept in the build's own folder (`check.json`), and what it means.

A build that failed is not used, and the choice falls to the next, until a check finds it good or another llmgw, which
may use other flags, has come. Of the build itself nothing changes but whether it is given cards by uuid or by number.
"""

from pathlib import Path

import msgspec

from core import VERSION
from core.engines import BuildCheck
from core.errors import DependencyError
from core.files import write_atomic
from core.hardware import Finding
from engines.check import FAILED

CHECK = "check.json"
_LIMIT_BYTES = 4 << 20


class BuildFailedCheck(DependencyError):
    """The build that is asked for by name did not pass engine-check."""

    code = "engine_build_failed_check"


def read_check(folder: Path) -> BuildCheck | None:
    """What is kept of the build in this folder; None when it was never checked, or nobody can read it."""
    try:
        with (folder / CHECK).open("rb") as file:
            return msgspec.json.decode(file.read(_LIMIT_BYTES), type=BuildCheck)
    except (OSError, ValueError):
        return None


def keep_check(folder: Path, check: BuildCheck) -> None:
    """Raises: StorageError, also where only root may write."""
    write_atomic(folder / CHECK, msgspec.json.format(msgspec.json.encode(check), indent=2))


def failure_of(check: BuildCheck | None, build_version: str) -> str:
    """Why the build is not used, as findings; empty when it may be. Pure."""
    if check is None or check.ok or is_stale(check, build_version):
        return ""
    bad = [f"{one.check}: {one.found}" for one in check.findings if one.status == FAILED]
    return "; ".join(bad)[:500] or "it did not pass"


def is_stale(check: BuildCheck, build_version: str) -> bool:
    """Whether it speaks of another llmgw or another build. Pure."""
    return (check.llmgw_version, check.engine_version) != (VERSION, build_version)


def judge(findings: list[Finding]) -> bool:
    """Whether nothing blocks. Pure."""
    return all(one.status != FAILED for one in findings)
