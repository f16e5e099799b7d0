"""Whose prompt is whose, on disk: a line for every prompt that is taken in, and another for its end.

The first is on disk before ComfyUI hears of the prompt, so that a gate which is killed in between still knows the
owner of what runs. A line is one JSON `JobRecord`; the last one of an id counts. A torn last line (power loss) and
whatever else is no record is skipped. The file is made anew with `KEEP` records at every start, and whenever it has
grown by `_COMPACT_BYTES` since.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from core.files import ensure_directory, storage_error, write_atomic
from engines.gates.comfyui.jobs import JobRecord

KEEP = 2000
_COMPACT_BYTES = 8 << 20

_decoder = msgspec.json.Decoder(JobRecord)


class Ledger:
    """See the module. One gate writes it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "ledger.jsonl"
        self._records: dict[str, JobRecord] = {}
        self._compact_at = 0
        """Bytes."""

    def load(self) -> list[JobRecord]:
        """The newest records, oldest first; the file holds nothing else afterwards. Raises: StorageError."""
        ensure_directory(self._path.parent, mode=0o700)
        self._records = {record.id: record for record in read_records(self._read())}
        self._compact()
        return list(self._records.values())

    def add(self, record: JobRecord) -> None:
        """Write a record down, for good. Raises: StorageError."""
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                before = os.fstat(descriptor).st_size
                line = msgspec.json.encode(record) + b"\n"
                if os.write(descriptor, line) != len(line):
                    os.ftruncate(descriptor, before)  # half a line would swallow the next one
                    raise OSError(28, os.strerror(28))
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise storage_error(self._path, error) from error
        self._records[record.id] = record
        if before > self._compact_at:
            self._compact()

    def _compact(self) -> None:
        for old in find_surplus(self._records.values(), KEEP):
            del self._records[old]
        text = b"".join(msgspec.json.encode(record) + b"\n" for record in self._records.values())
        write_atomic(self._path, text, mode=0o600)
        self._compact_at = len(text) + _COMPACT_BYTES

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise storage_error(self._path, error) from error


def find_surplus(records: Collection[JobRecord], keep: int) -> list[str]:
    """Ids of those to be forgotten of records that came in this order, so that `keep` are left. Pure.

    The oldest of whoever has most, so that nobody's many prompts make another's forgotten; and none that is not over,
    whose owner would be lost with it.
    """
    excess = len(records) - keep
    if excess <= 0:
        return []
    over = [record for record in records if record.state.is_final]
    counts = Counter(record.caller for record in over)
    share = max(counts.values(), default=0)
    while share and sum(max(0, count - share) for count in counts.values()) < excess:
        share -= 1
    going: list[str] = []
    for record in over:
        if counts[record.caller] > share and len(going) < excess:
            counts[record.caller] -= 1
            going.append(record.id)
    return going


def read_records(data: bytes) -> list[JobRecord]:
    """The last record of each id, in the order in which the prompts came. Pure."""
    found: dict[str, JobRecord] = {}
    for line in _lines(data):
        try:
            record = _decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
        found[record.id] = record
    return list(found.values())


def _lines(data: bytes) -> Iterable[bytes]:
    return (line for line in data.split(b"\n") if line)
