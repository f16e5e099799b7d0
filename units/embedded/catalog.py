"""The unit files on disk, as far as the supervisor can use them. Says once what it does not understand."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from core.log import EventLogger
from units.embedded.identity import names_identity
from units.embedded.parse import EmbeddedUnit, UnitUnreadable, parse_unit

_SUFFIX = ".service"
_MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: what it says, or why it cannot be used."""

    digest: bytes
    spec: EmbeddedUnit | None
    problem: str = ""


class Catalog:
    """Reads a folder of unit files; a file that did not change is not parsed again."""

    def __init__(self, folder: Path, log: EventLogger) -> None:
        self._folder = folder
        self._log = log
        self._entries: dict[str, Entry] = {}
        self._named: set[str] = set()

    def exists(self, name: str) -> bool:
        """Whether there is such a file. The name comes from outside: it must not lead elsewhere."""
        is_plain = name.endswith(_SUFFIX) and not {"/", "\0"} & set(name) and len(os.fsencode(name)) <= 255
        return is_plain and (self._folder / name).is_file()

    def read(self) -> dict[str, Entry]:
        """All units that have a file now."""
        try:
            names = sorted(name for name in os.listdir(self._folder) if name.endswith(_SUFFIX) and name[0] != ".")
        except OSError:
            names = []
        self._entries = {name: entry for name in names if (entry := self._read_one(name)) is not None}
        return self._entries

    def _read_one(self, name: str) -> Entry | None:
        try:
            with open(self._folder / name, "rb") as file:
                data = file.read(_MAX_FILE_BYTES)
        except OSError:
            return None
        digest = hashlib.sha256(data).digest()
        known = self._entries.get(name)
        return known if known is not None and known.digest == digest else self._parse(name, data, digest)

    def _parse(self, name: str, data: bytes, digest: bytes) -> Entry:
        try:
            spec = parse_unit(name, data.decode("utf-8", "replace"))
        except UnitUnreadable as error:
            self._log.error("unit_unreadable", unit=name, error=error.message)
            return Entry(digest, None, error.message)
        self._say_what_is_not_done(spec)
        return Entry(digest, spec)

    def _say_what_is_not_done(self, spec: EmbeddedUnit) -> None:
        if spec.unknown:
            self._log.warning("unit_directives_not_understood", unit=spec.name, directives=" ".join(spec.unknown))
        new = [name for name in spec.unconfined if name not in self._named]
        if new:
            self._named.update(new)
            self._log.warning("confinement_not_applied", directives=" ".join(new), reason="only systemd applies it")
        if os.geteuid() != 0 and names_identity(spec) and "User" not in self._named:
            self._named.add("User")
            self._log.warning("unit_user_not_applied", uid=os.geteuid(), reason="only root can change users")
