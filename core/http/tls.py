"""TLS for a listener, from a certificate's and a key's file.

A worker reads them when it begins to listen, so a reload, which starts new workers, takes up a renewed certificate.
What cannot be read ends the worker with its reason: a port that should speak TLS never speaks anything else.
"""

import ssl
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from core.errors import ConfigError

HANDSHAKE_TIMEOUT_S = 30.0


class TlsUnusable(ConfigError):
    """The files do not make a certificate that can be served with."""

    code = "tls_unusable"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where certificate (with its chain) and private key are, as PEM."""

    certificate: str
    key: str


@runtime_checkable
class SecureApp(Protocol):
    """An application that says how its listeners are secured."""

    def tls_files(self) -> TlsFiles | None:
        """Asked after its startup; None: plain HTTP."""


def load_context(files: TlsFiles) -> ssl.SSLContext:
    """TLS 1.2 and 1.3, HTTP/1.1. Raises: TlsUnusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # A key with a passphrase would make OpenSSL ask for it on the terminal.
        context.load_cert_chain(files.certificate, files.key, password=_no_passphrase)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise TlsUnusable(
            f"{files.certificate} and {files.key} cannot be served with: {reason}",
            hint="server.tls: PEM files, the key without a passphrase, readable by the gateway's user",
        ) from error
    return context


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")
