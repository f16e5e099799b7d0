"""What was fetched into a unit: of each file its digest and where it came from, in `.fetched.json` beside the files.

Written under the unit's lock, before the file appears by its rename: a file that is there is in it. Only root reads it,
because an address may have a signature in it. `engines.integrity` compares files with it, `engines.mending` fetches
them again by it. A whole model of Hugging Face has a second record, older than this one: `.complete`.
"""

import re
from pathlib import Path

import msgspec

from core.files import write_atomic

_RECORD = ".fetched.json"
COMPLETE = ".complete"
"""Of a whole model: `DIGEST  NAME` lines; the model is here once this file is."""
MENDING = ".complete.mending"
"""What COMPLETE is called while a file of the model is fetched again."""


class FetchedFile(msgspec.Struct, frozen=True):
    """One file as it was when it came."""

    name: str
    """Its path below the unit's folder."""
    digest: str
    kind: str = "sha256"
    """Or `git`: a blob's name in git."""
    source: str = ""
    """As `engines.sources` reads it, of this one file; empty: not known."""


class _Record(msgspec.Struct, frozen=True):
    files: list[FetchedFile] = []


def record_file(folder: Path, file: FetchedFile) -> None:
    """Remember it, instead of what was remembered under its name. Raises: StorageError."""
    files = {**_read(folder), file.name: file}
    record = _Record([files[name] for name in sorted(files)])
    write_atomic(folder / _RECORD, msgspec.json.format(msgspec.json.encode(record)), mode=0o600)


def read_records(folder: Path, *, model: str = "") -> dict[str, FetchedFile]:
    """What is known of the unit in `folder`, by name; empty when nothing is, or when the record is broken.

    `model`: `ORG/REPO` when it is one of Hugging Face, at the commit that the folder is called.
    """
    files = {}
    for marker in (MENDING, COMPLETE) if model else ():
        for file in parse_complete(_text(folder / marker), model, folder.name):
            files[file.name] = file
    return {**files, **_read(folder)}


def parse_complete(text: str, model: str, commit: str) -> list[FetchedFile]:
    """The files that a whole model consists of. Lines that say no digest are left out. Pure."""
    files = []
    for line in text.splitlines():
        match = re.fullmatch(r"([0-9a-f]{64}|[0-9a-f]{40})  (.+)", line)
        if match and _is_inside(match[2]):
            kind = "sha256" if len(match[1]) == 64 else "git"
            files.append(FetchedFile(match[2], match[1], kind, f"hf:{model}@{commit}:{match[2]}"))
    return files


def _read(folder: Path) -> dict[str, FetchedFile]:
    try:
        record = msgspec.json.decode((folder / _RECORD).read_bytes(), type=_Record)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return {file.name: file for file in record.files if _is_inside(file.name)}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _is_inside(name: str) -> bool:
    return "\0" not in name and not any(part in ("", ".", "..") for part in name.split("/"))
