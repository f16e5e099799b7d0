"""The file of clients' keys, and those keys in memory. One per daemon; only it writes the file.

The file is written before anything counts, so what was answered survives a crash, and what could not be written never
was. A file that cannot be understood opens nothing and is never overwritten: no key of it holds, none can be made or
revoked, and administration is not left open in the meantime, until somebody mends it and reloads.
"""

import os
import secrets
import stat
from pathlib import Path

import msgspec

from core.api import ApiKey
from core.clock import Clock
from core.errors import DependencyError
from core.files import ensure_directory, write_atomic
from core.keys import CreatedKey, CreateKeyRequest, KeyInfo
from core.log import EventLogger
from core.message import Message
from daemon.keys import (
    SECRET_PREFIX,
    StoredKey,
    TooManyKeys,
    add_key,
    find_fault,
    find_key,
    make_key,
)

_MOST_BYTES = 8 << 20
_SECRET_BYTES = 32
_ID_BYTES = 6


class KeysUnreadable(DependencyError):
    """The file of keys cannot be used."""

    code = "keys_unreadable"


class _File(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    keys: list[StoredKey]


class KeyStore:
    """See the module."""

    def __init__(self, path: Path, clock: Clock, log: EventLogger) -> None:
        self.path = path
        self.fault = ""
        """Why the file cannot be used; empty when it can, or is not there."""
        self._clock = clock
        self._log = log
        self._keys: tuple[StoredKey, ...] = ()
        self._for_gateway: list[ApiKey] = []

    def load(self) -> None:
        """Read the file; what was in memory is forgotten. Never raises: see `fault`."""
        try:
            self._use(read_keys(self.path))
            self.fault = ""
        except KeysUnreadable as error:
            self._use(())
            if error.message != self.fault:
                self._log.error("keys_unreadable", error=error.message, hint=error.hint)
            self.fault = error.message

    def for_gateway(self) -> list[ApiKey]:
        """The same list until something changes."""
        return self._for_gateway

    def list_keys(self) -> list[KeyInfo]:
        """Raises: KeysUnreadable."""
        self._require_usable()
        return [key.info() for key in self._keys]

    def create(self, request: CreateKeyRequest) -> CreatedKey:
        """Make a key. Raises: KeyInvalid, KeyExists, TooManyKeys, KeysUnreadable, StorageError."""
        self._require_usable()
        secret = SECRET_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        key_id = f"key_{secrets.token_hex(_ID_BYTES)}"
        made = make_key(request, secret=secret, key_id=key_id, now_s=self._clock.wall_s())
        keys = add_key(self._keys, made)
        if request.dry:
            return CreatedKey(key=msgspec.structs.replace(made.info(), id="", created_at=""))
        self._write(keys)
        self._log.info("key_made", key=made.name, id=made.id, scope=made.scope)
        return CreatedKey(key=made.info(), secret=secret)

    def revoke(self, named: str, in_config: list[KeyInfo], *, apply: bool) -> KeyInfo:
        """Take a key away. Raises: KeyUnknown, KeyInConfig, KeysUnreadable, StorageError."""
        self._require_usable()
        found = find_key(self._keys, named, in_config=in_config)
        if apply:
            self._write(tuple(key for key in self._keys if key.id != found.id))
            self._log.info("key_revoked", key=found.name, id=found.id)
        return found.info()

    def _require_usable(self) -> None:
        if self.fault:
            raise KeysUnreadable(self.fault, hint=f"mend {self.path} or move it away, then llmgw reload")

    def _write(self, keys: tuple[StoredKey, ...]) -> None:
        data = msgspec.json.format(msgspec.json.encode(_File(version=1, keys=list(keys))), indent=1)
        if len(data) > _MOST_BYTES and len(keys) > len(self._keys):
            raise TooManyKeys("the keys' names of models take too much room", hint="use patterns: 'qwen-*'")
        ensure_directory(self.path.parent, mode=0o755)
        write_atomic(self.path, data, mode=0o600)
        self._use(keys)

    def _use(self, keys: tuple[StoredKey, ...]) -> None:
        self._keys = keys
        self._for_gateway = [key.for_gateway() for key in keys]


def read_keys(path: Path) -> tuple[StoredKey, ...]:
    """The file's keys; none where there is no file. Raises: KeysUnreadable."""
    try:
        data = _read_bounded(path)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise KeysUnreadable(f"{path}: {error.strerror or error}") from error
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise KeysUnreadable(f"{path} is not a file of keys: {error}") from None
    if file.version != 1:
        raise KeysUnreadable(f"{path} is of version {file.version}; this llmgw knows version 1")
    _check(path, file.keys)
    return tuple(file.keys)


def _read_bounded(path: Path) -> bytes:
    """Raises: OSError, KeysUnreadable. Neither a device nor a pipe may hold the daemon up."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise KeysUnreadable(f"{path} is no file")
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise KeysUnreadable(
                f"{path} could have been written by others: it belongs to user {status.st_uid}"
                f" and has the mode {status.st_mode & 0o777:o}"
            )
        data = file.read(_MOST_BYTES * 2 + 1)
    if len(data) > _MOST_BYTES * 2:
        raise KeysUnreadable(f"{path} is larger than {_MOST_BYTES * 2 >> 20} MiB")
    return data


def _check(path: Path, keys: list[StoredKey]) -> None:
    seen: set[str] = set()
    for number, key in enumerate(keys):
        fault = find_fault(key)
        for identity in (key.id, key.name, key.sha256):
            if not fault and identity in seen:
                fault = "what another key has, too"
            seen.add(identity)
        if fault:
            raise KeysUnreadable(f"{path}: keys[{number}] has {fault}")
