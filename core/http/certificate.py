"""Which certificate a worker serves with, and when it takes up another one.

The files are looked at about once a second: a certificate that was renewed in place, and one that the config names
now, are served to new connections without anybody doing anything. Files that cannot be used are never taken up: what
was served with before goes on, over a reload too (`core.http.kept_tls`), and the application is told why. Only a worker
that has nothing of the kind ends: a port that should speak TLS never speaks anything else.
"""

import os
import ssl
from collections.abc import Callable
from datetime import UTC, datetime

from core.http.kept_tls import KeptTls
from core.http.tls import SecureApp, TlsFiles, TlsPair, TlsUnusable, build_context, read_pair

LOOK_S = 1.0

_Signature = tuple[object, ...]


class Certificate:
    """One worker's."""

    def __init__(self, app: SecureApp, kept: KeptTls | None, now_s: Callable[[], float]) -> None:
        """`now_s`: seconds since the epoch."""
        self.context: ssl.SSLContext | None = None
        """None: plain HTTP."""
        self._app = app
        self._kept = kept
        self._now_s = now_s
        self._pair: TlsPair | None = None
        self._seen: _Signature = ()
        """How the files were when they were looked at last."""
        self._tried: _Signature = ()
        """How they were when they were read last."""
        self._complaint = ""

    def begin(self) -> None:
        """At the worker's start. Raises: TlsUnusable when there is nothing to serve with."""
        files = self._app.tls_files()
        self._seen = self._tried = _sign(files)
        was_served, before = self._kept.find() if self._kept is not None else (False, None)
        try:
            self._use(files, before)
        except TlsUnusable as error:
            if not was_served:
                raise
            self._serve(before, files)
            self._judge(error.message)
        if self._kept is not None:
            self._kept.keep(self._pair)

    def look(self) -> bool:
        """Whether `context` is another one now."""
        files = self._app.tls_files()
        signature = _sign(files)
        is_settled, self._seen = signature == self._seen, signature
        if signature == self._tried and not self._complaint:
            self._judge(self._fault_of_age())
            return False
        if not is_settled:
            return False  # a renewal writes two files, one after the other
        self._tried = signature
        context = self.context
        try:
            self._use(files, self._pair)
        except TlsUnusable as error:
            self._judge(error.message)
        return self.context is not context

    def _use(self, files: TlsFiles | None, before: TlsPair | None) -> None:
        """Serve with these files, rather than with what was before. Raises: TlsUnusable."""
        pair = read_pair(files) if files is not None else None
        has_better = before is not None and not self._has_expired(before)
        if pair is not None and files is not None and has_better and self._has_expired(pair):
            raise TlsUnusable(f"{files.certificate} {self._words_of_age(pair)}; the one before it is still good")
        if pair != self._pair or (pair is None) != (self.context is None):
            self._serve(pair, files)
        self._judge(self._fault_of_age())

    def _serve(self, pair: TlsPair | None, files: TlsFiles | None) -> None:
        """Raises: TlsUnusable."""
        context = build_context(pair, files or TlsFiles("", "")) if pair is not None else None
        self.context, self._pair = context, pair
        if self._kept is not None:
            self._kept.keep(pair)

    def _fault_of_age(self) -> str:
        """Of what is served with, because there is nothing better."""
        if self._pair is None or not self._has_expired(self._pair):
            return ""
        return f"the certificate {self._words_of_age(self._pair)}"

    def _has_expired(self, pair: TlsPair) -> bool:
        return pair.expires_s is not None and pair.expires_s < self._now_s()

    def _words_of_age(self, pair: TlsPair) -> str:
        return f"has expired on {datetime.fromtimestamp(pair.expires_s or 0.0, UTC).isoformat(timespec='seconds')}"

    def _judge(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            self._app.tls_judged(complaint)


def _sign(files: TlsFiles | None) -> _Signature:
    """Differs when the files may."""
    return (files, *(_sign_one(path) for path in ((files.certificate, files.key) if files is not None else ())))


def _sign_one(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
