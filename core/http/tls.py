"""TLS for a listener, from a certificate's and a key's file.

Both files are read whole and judged together, so that what is served with is what was judged, whatever happens to the
files meanwhile. When they are read, and what becomes of a worker whose files cannot be used, is
`core.http.certificate`'s affair.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from core.errors import ConfigError
from core.http.validity import read_expiry

HANDSHAKE_TIMEOUT_S = 30.0
_LARGEST_FILE = 1 << 20


class TlsUnusable(ConfigError):
    """The files do not make a certificate that can be served with."""

    code = "tls_unusable"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where certificate (with its chain) and private key are, as PEM."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class TlsPair:
    """What stands in them."""

    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @property
    def expires_s(self) -> float | None:
        """When it is good for nothing any more, since the epoch; None: it does not say."""
        return read_expiry(self.certificate)


@runtime_checkable
class SecureApp(Protocol):
    """An application that says how its listeners are secured."""

    def tls_files(self) -> TlsFiles | None:
        """Asked after its startup, and about every second; None: plain HTTP."""

    def tls_judged(self, complaint: str) -> None:
        """Told when the judgement of its files has changed: why they are not what is served with; empty: they are."""


def read_pair(files: TlsFiles) -> TlsPair:
    """Raises: TlsUnusable."""
    return TlsPair(_read(files.certificate, files), _read(files.key, files))


def _read(path: str, files: TlsFiles) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise _unusable(files, f"{path}: {error.strerror}") from error
    if len(data) > _LARGEST_FILE:
        raise _unusable(files, f"{path} is larger than {_LARGEST_FILE >> 20} MiB")
    return data


def build_context(pair: TlsPair, files: TlsFiles) -> ssl.SSLContext:
    """TLS 1.2 and 1.3, HTTP/1.1. `files` are named where it goes wrong. Raises: TlsUnusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # OpenSSL is given paths; these are of memory that only this process has.
        with _as_file(pair.certificate) as certificate, _as_file(pair.key) as key:
            # A key with a passphrase would make OpenSSL ask for it on the terminal.
            context.load_cert_chain(certificate, key, password=_no_passphrase)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise _unusable(files, reason) from error
    return context


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    with open(os.memfd_create("llmgw-pem"), "wb", buffering=0) as file:
        file.write(data)
        yield f"/proc/self/fd/{file.fileno()}"


def _unusable(files: TlsFiles, reason: str) -> TlsUnusable:
    return TlsUnusable(
        f"{files.certificate} and {files.key} cannot be served with: {reason}",
        hint="server.tls: PEM files, the key without a passphrase, readable by the gateway's user",
    )


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")
