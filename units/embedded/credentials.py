"""Secrets for one life of a unit: copies in a directory that only its user can read, gone when the life ends."""

import os
import shutil
from pathlib import Path

from core.errors import ConfigError
from units.embedded.identity import Identity
from units.embedded.parse import EmbeddedUnit

MAX_BYTES = 1 << 20
"""systemd's own limit for one credential."""


class CredentialUnreadable(ConfigError):
    """A `LoadCredential=` whose source cannot be read."""

    code = "credential_unreadable"


def write_credentials(unit: EmbeddedUnit, directory: Path, identity: Identity | None) -> None:
    """Make `directory` (0700) with one file (0400) per credential, owned by the unit's user.

    Raises: CredentialUnreadable, OSError.
    """
    remove_credentials(directory)
    directory.mkdir(mode=0o700)
    for name, source in unit.credentials:
        _write_one(directory / name, _read_source(unit.name, name, source), identity)
    if identity is not None:
        os.chown(directory, identity.uid, identity.gid)


def _read_source(unit: str, name: str, source: str) -> bytes:
    try:
        with open(source, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CredentialUnreadable(f"{unit}: credential {name}: {source}: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise CredentialUnreadable(f"{unit}: credential {name}: {source} is larger than {MAX_BYTES} bytes")
    return data


def _write_one(path: Path, data: bytes, identity: Identity | None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o400)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if identity is not None:
            os.fchown(descriptor, identity.uid, identity.gid)
    finally:
        os.close(descriptor)


def remove_credentials(directory: Path) -> None:
    """Take them away; none is fine."""
    shutil.rmtree(directory, ignore_errors=True)
