"""How the workers were served last, in memory that outlives each of them: certificate and key, or plain HTTP.

A reload, or the death of a worker, starts another with the files of that moment. Where these cannot be used it goes on
as those before it did, instead of leaving the port to nobody. The arbiter makes the memory before it forks; it is gone
with it, and nothing is ever on a disk.
"""

import fcntl
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from core.http.tls import TlsPair

KEPT_TLS_VARIABLE = "LLMGW_KEPT_TLS"
"""The number of the file that is this memory."""

_HEAD = struct.Struct("=qqq")
_NOTHING, _PLAIN, _PAIR = range(3)


class KeptTls:
    """See the module. What it holds is put there by a worker that serves with it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def create(cls) -> "KeptTls":
        """A new one, empty. It is inherited by a fork, and by no other program."""
        return cls(os.memfd_create("llmgw-tls"))

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "KeptTls | None":
        number = environ.get(KEPT_TLS_VARIABLE)
        return cls(int(number)) if number else None

    def keep(self, pair: TlsPair | None) -> None:
        """This is what is served with now; None: plain HTTP."""
        data = _HEAD.pack(_PLAIN, 0, 0)
        if pair is not None:
            data = _HEAD.pack(_PAIR, len(pair.certificate), len(pair.key)) + pair.certificate + pair.key
        with self._locked():
            os.pwrite(self.fd, data, 0)
            os.ftruncate(self.fd, len(data))

    def find(self) -> tuple[bool, TlsPair | None]:
        """Whether anything was served here before; and with what, None: plain HTTP."""
        with self._locked():
            data = os.pread(self.fd, os.fstat(self.fd).st_size, 0)
        if len(data) < _HEAD.size:
            return False, None
        kind, certificate, key = _HEAD.unpack_from(data)
        if kind != _PAIR:
            return kind == _PLAIN, None
        begin = _HEAD.size + certificate
        return True, TlsPair(data[_HEAD.size : begin], data[begin : begin + key])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # A lock of POSIX belongs to the process, and the kernel takes it from one that dies.
        fcntl.lockf(self.fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN)
