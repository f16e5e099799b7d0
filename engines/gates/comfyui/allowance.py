"""How much callers may keep, and which files go. Pure.

Files go when they are old, and the oldest go when all together are too many; results go before uploads. What a prompt
that is not over may have written or may still read stays: its caller's uploads, and what was written since it came.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from core.errors import LlmgwError, RefusedError
from engines.gates.comfyui.stock import Kept, Stock

MIB = 1 << 20
_SLACK = 1.25
"""A prompt that runs may bring its caller's files over the limit by this much, before it is ended."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What the operator allows (`options` of the runtime)."""

    caller_bytes: int = 4096 * MIB
    """Of one caller's uploads and results."""
    total_bytes: int = 32768 * MIB
    """Of everybody's."""
    free_bytes: int = 512 * MIB
    """What stays free on the disk."""
    keep_s: float = 168 * 3600.0
    """How long files are kept; 0: until others need the room."""


class FilesOverLimit(RefusedError):
    """The caller keeps as much as it may. `used_bytes` and `limit_bytes` are told."""

    code = "files_over_limit"
    http_status = 413

    def __init__(self, message: str, used_bytes: int, limit_bytes: int) -> None:
        super().__init__(message, hint="DELETE /view, or wait until files expire")
        self.facts = {"used_bytes": used_bytes, "limit_bytes": limit_bytes}


class FilesFull(LlmgwError):
    """There is no room for anybody's files; the caller can do nothing about it."""

    code = "files_full"
    exit_code = RefusedError.exit_code
    http_status = 507

    def __init__(self, message: str, used_bytes: int, limit_bytes: int) -> None:
        super().__init__(message)
        self.facts = {"used_bytes": used_bytes, "limit_bytes": limit_bytes}


@dataclass(frozen=True, slots=True)
class Busy:
    """Whose prompts are not over, and since when: seconds since the epoch, of each caller's oldest."""

    since: Mapping[str, float]
    temporary: Mapping[str, str]
    """Name in the temporary folder -> the caller in whose results it appeared."""

    def owner(self, file: Kept) -> str:
        return file.owner or self.temporary.get(file.path, "")

    def needs(self, file: Kept) -> bool:
        """Whether a prompt that is not over may need it."""
        owner = self.owner(file)
        if not owner:
            return bool(self.since) and file.changed_s >= min(self.since.values())
        if owner not in self.since:
            return False
        return file.folder == "input" or file.changed_s >= self.since[owner]


def used_by(stock: Stock, caller: str, busy: Busy) -> int:
    """Bytes of a caller's files."""
    return sum(file.size_bytes for file in stock.files if busy.owner(file) == caller)


def judge_room(stock: Stock, caller: str, busy: Busy, allowance: Allowance, *, coming: int, more: int) -> None:
    """Let a caller bring `more` bytes, with `coming` under way; 0: a prompt, of which nobody knows.

    Raises: FilesOverLimit, FilesFull.
    """
    used, limit = used_by(stock, caller, busy) + coming, allowance.caller_bytes
    if used + more > limit or (not more and used >= limit):
        raise FilesOverLimit(f"your files take {_mib(used)} MiB of the {_mib(limit)} that you may keep", used, limit)
    total, limit = stock.total_bytes + more, allowance.total_bytes
    if total > limit:
        raise FilesFull(f"all files here take {_mib(total)} MiB of {_mib(limit)}", total, limit)
    if stock.free_bytes - more < allowance.free_bytes:
        raise FilesFull(
            f"the disk has {_mib(stock.free_bytes)} MiB free, and {_mib(allowance.free_bytes)} are to stay free",
            stock.total_bytes,
            limit,
        )


def find_overrunning(stock: Stock, callers: Iterable[str], busy: Busy, allowance: Allowance) -> dict[str, int]:
    """Those of these callers whose files are far over their limit, and by how much they use."""
    used = {caller: used_by(stock, caller, busy) for caller in callers}
    return {caller: size for caller, size in used.items() if size > allowance.caller_bytes * _SLACK}


def plan_removals(stock: Stock, busy: Busy, allowance: Allowance, now_s: float, room_bytes: int = 0) -> list[Kept]:
    """The files that go, oldest first, so that there is room for so many bytes more. Where there cannot be, none go for
    it.
    """
    spare = [file for file in stock.files if not busy.needs(file)]
    spare.sort(key=lambda file: (file.folder == "input", file.changed_s))
    going: list[Kept] = []
    over = stock.total_bytes - allowance.total_bytes
    if sum(file.size_bytes for file in spare) >= over + room_bytes:
        over += room_bytes
    for file in spare:
        is_old = bool(allowance.keep_s) and now_s - file.changed_s > allowance.keep_s
        if is_old or over > 0:
            going.append(file)
            over -= file.size_bytes
    return going


def _mib(size_bytes: int) -> int:
    return -(-size_bytes // MIB)
