"""Brings one large file, resumably, and lets it appear only when its digest is right.

What has come lies in `.parts/DIGEST` beside the target, so that a killed process, a full disk or a lost network costs
nothing but the time: the next call asks for the rest. Connections that break are tried again as long as any byte comes.
"""

import asyncio
import errno
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from core.api import Progress
from core.errors import DependencyError, LlmgwError, NotFoundError, PermissionError_, UnavailableError
from core.files import ensure_directory, storage_error
from core.http.client import ByteStream, HttpClient
from core.tasks import Backoff
from engines.pypi import ProgressSink
from engines.sources import may_fetch
from engines.staging import check_space, publish, run_to_end

_MAX_REDIRECTS = 5
_UNREADABLE = (errno.EACCES, errno.EISDIR, errno.EIO)
_FRUITLESS_TRIES = 6
_REPORT_EVERY_BYTES = 4 << 20


class DownloadMismatch(DependencyError):
    """What came has another digest than the one that was asked for."""

    code = "download_digest_mismatch"


class DownloadFailed(UnavailableError):
    """The server cannot be reached, or answers with an error."""

    code = "download_failed"


@dataclass(frozen=True, slots=True)
class Download:
    """What to fetch."""

    url: str
    """Or the absolute path of a file of this machine (a mirror's)."""
    digest: str
    kind: str = "sha256"
    """Or `git`: a blob's name in git, which is all that Hugging Face says of small files."""
    size_bytes: int | None = None
    token: str = field(default="", repr=False)
    """Sent to the address itself only, never to where it redirects."""
    missing_code: str = "weights_missing"
    """Code of the error when there is no such file."""


def _ignore() -> None:
    """The default for `before_publish`."""


async def download(
    http: HttpClient,
    item: Download,
    target: Path,
    progress: ProgressSink,
    *,
    before_publish: Callable[[], None] = _ignore,
) -> None:
    """Make `target` (its folder exists and is locked). `before_publish` hears that its digest is right.

    Raises: DownloadMismatch, DownloadFailed, NotFoundError, PermissionError_, StorageError.
    """
    parts = target.parent / ".parts"
    ensure_directory(parts, mode=0o700)
    part = parts / item.digest
    if item.size_bytes is not None:
        check_space(target.parent, max(0, item.size_bytes - _size(part)), target.name)
    await _fetch_all(http, item, part, target.name, progress)
    progress(Progress(step="verify", detail=target.name))
    found: list[str] = []
    await run_to_end(partial(_digest, part, item.kind, found))
    if found != [item.digest]:
        part.unlink(missing_ok=True)
        raise DownloadMismatch(
            f"{item.url} gave a file with another digest than {item.digest[:16]}…; nothing was kept",
            hint="the file was replaced, or something on the way changes it",
        )
    try:
        part.chmod(0o644)
    except OSError as error:
        raise storage_error(part, error) from error
    before_publish()
    publish(part, target)


async def require_digest(path: Path, item: Download) -> None:
    """Whether a file that is there is the one that would be fetched. Raises: DownloadMismatch, StorageError."""
    found: list[str] = []
    await run_to_end(partial(_digest, path, item.kind, found))
    if found != [item.digest]:
        raise DownloadMismatch(
            f"{path} is there, with another digest than {item.digest[:16]}…", hint="take it away, and it is fetched"
        )


async def _fetch_all(http: HttpClient, item: Download, part: Path, name: str, progress: ProgressSink) -> None:
    """Until the server has no more to give; a try that brought something is followed by another."""
    backoff, fruitless = Backoff(0.1, 5.0), 0
    while True:
        before = _size(part)
        try:
            if item.url.startswith("/"):
                await run_to_end(partial(_copy_rest, item, part, name, progress))
                return
            if await _fetch_rest(http, item, part, name, progress):
                return
            reason = "the connection broke"
        except (DownloadFailed, UnavailableError) as error:
            reason = error.message
        except LlmgwError as error:
            if error.code != "answer_timed_out":
                raise
            reason = error.message
        fruitless = 0 if _size(part) > before else fruitless + 1
        if fruitless >= _FRUITLESS_TRIES:
            raise DownloadFailed(f"{name} cannot be fetched: {reason}", hint="the same again goes on where it was")
        await asyncio.sleep(backoff.next_s() if fruitless else 0)


async def _fetch_rest(http: HttpClient, item: Download, part: Path, name: str, progress: ProgressSink) -> bool:
    """One request for what is missing. Whether the file is complete now."""
    url, start = item.url, _size(part)
    for _ in range(_MAX_REDIRECTS + 1):
        headers = {"Range": f"bytes={start}-", "Accept-Encoding": "identity"}
        if item.token and urlsplit(url).netloc == urlsplit(item.url).netloc:
            headers["Authorization"] = f"Bearer {item.token}"
        async with http.download(url, headers=headers) as answer:
            if answer.status not in (301, 302, 303, 307, 308):
                return await _receive(answer, item, part, start, name, progress)
            url = urljoin(url, answer.headers.get("location", ""))
        if not may_fetch(url):
            raise DependencyError(f"{item.url} redirects to an address that is not https", code="download_refused")
    raise DependencyError(f"{item.url} redirects in circles", code="download_refused")


async def _receive(
    answer: ByteStream, item: Download, part: Path, start: int, name: str, progress: ProgressSink
) -> bool:
    if answer.status == 416:  # nothing beyond what we have: complete, or another file by now; the digest tells
        return True
    _judge_status(answer.status, item)
    resumes = answer.status == 206
    done = start if resumes else 0
    length = answer.headers.get("content-length", "")
    total = done + int(length) if length.isdecimal() else None
    told = done
    try:
        with open(part, "ab" if resumes else "wb") as file:
            async for chunk in answer.chunks():
                file.write(chunk)
                done += len(chunk)
                if done - told >= _REPORT_EVERY_BYTES or told == 0:
                    told = done
                    progress(Progress(step="download", detail=name, done_bytes=done, total_bytes=total))
    except OSError as error:
        if isinstance(error, ConnectionError):
            return False
        raise storage_error(part, error) from error
    return total is None or done >= total


def _judge_status(status: int, item: Download) -> None:
    """Raises for everything but a file."""
    if status in (200, 206):
        return
    if status in (401, 403):
        raise PermissionError_(
            f"{item.url} may not be fetched ({status})",
            hint="a gated model needs its licence accepted, and HF_TOKEN in the daemon's environment file",
            code="download_forbidden",
        )
    if status in (404, 410):
        raise _missing(item)
    raise DownloadFailed(f"{item.url} answers {status}")


def _missing(item: Download) -> NotFoundError:
    return NotFoundError(f"there is no {item.url}", code=item.missing_code)


def _copy_rest(item: Download, part: Path, name: str, progress: ProgressSink, stop: threading.Event) -> None:
    """What is missing of a file of this machine."""
    source, done = Path(item.url), _size(part)
    try:
        with open(source, "rb") as original, open(part, "ab") as copy:
            total = os.fstat(original.fileno()).st_size
            original.seek(done)
            while not stop.is_set() and (chunk := original.read(_REPORT_EVERY_BYTES)):
                copy.write(chunk)
                done += len(chunk)
                progress(Progress(step="download", detail=name, done_bytes=done, total_bytes=total))
    except FileNotFoundError:
        raise _missing(item) from None
    except OSError as error:
        raise storage_error(source if error.errno in _UNREADABLE else part, error) from error


def _digest(path: Path, kind: str, found: list[str], stop: threading.Event) -> None:
    """Sync and hash the file; appends the digest unless it was stopped."""
    try:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            digest = hashlib.sha256() if kind == "sha256" else hashlib.sha1(usedforsecurity=False)
            if kind != "sha256":
                digest.update(b"blob %d\0" % os.fstat(file.fileno()).st_size)
            while chunk := file.read(1 << 20):
                if stop.is_set():
                    return
                digest.update(chunk)
    except OSError as error:
        raise storage_error(path, error) from error
    found.append(digest.hexdigest())


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
