"""Our keys for backends, each in a file that the gateway's group may read: the gateway has no other way to them.

A file's name changes with the key, so that a new key is a new route and all workers take it up together; the name tells
nothing of the key. What the config does not name any more is removed, one change of the config later: until then there
may be a worker that has not seen the newer table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from core.config.backend import Backend
from core.errors import LlmgwError
from core.files import ensure_directory, write_atomic
from core.log import EventLogger

_SALT = b"llmgw backend key\0"


@dataclass(frozen=True, slots=True)
class KeyFile:
    """Where a backend's key lies, or why it does not."""

    path: str = ""
    """Empty: it has none, or there is a fault."""
    fault: str = ""


class BackendKeys:
    """See the module. One for a daemon."""

    def __init__(self, directory: Path, gid: int, log: EventLogger) -> None:
        self._directory = directory
        self._gid = gid
        self._log = log
        self.stored: Mapping[str, KeyFile] = {}
        """By backend, as `store` left it."""
        self._of: Mapping[str, str] | None = None
        self._before: frozenset[str] = frozenset()

    def store(self, backends: Mapping[str, Backend]) -> Mapping[str, KeyFile]:
        """Have exactly these keys lie there; by backend. Cheap where nothing is new."""
        keys = {name: backend.api_key for name, backend in backends.items() if backend.enabled and backend.api_key}
        is_whole = not any(stored.fault for stored in self.stored.values())
        if keys == self._of and is_whole:
            return self.stored
        told = {stored.fault for stored in self.stored.values()}
        self.stored = {name: self._write(name, key, told) for name, key in keys.items()}
        self._of = keys
        names = frozenset(Path(stored.path).name for stored in self.stored.values() if stored.path)
        self._remove_others(names | self._before)
        self._before = names
        return self.stored

    def _write(self, name: str, key: str, told: set[str]) -> KeyFile:
        path = self._directory / file_name(name, key)
        try:
            if not path.exists():
                ensure_directory(self._directory, mode=0o750, gid=self._gid)
                write_atomic(path, f"{key}\n", mode=0o640, gid=self._gid)
        except LlmgwError as error:
            fault = f"its key cannot be stored: {error.message}"
            if fault not in told:
                self._log.error("backend_key_not_stored", backend=name, error=error.message)
            return KeyFile(fault=fault)
        return KeyFile(str(path))

    def _remove_others(self, kept: frozenset[str]) -> None:
        try:
            for path in self._directory.iterdir():
                if path.name not in kept:
                    path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            self._log.warning("backend_keys_left", error=error.strerror)


def file_name(name: str, key: str) -> str:
    """Pure. The same for the same key, so that a daemon that starts changes nothing."""
    return f"{name}.{sha256(_SALT + key.encode()).hexdigest()[:12]}.key"
