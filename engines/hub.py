"""Models on Hugging Face: which files a revision has, with the digest of each. The answer is read in a pure function.

The address may be a mirror's (`HF_ENDPOINT`), and a gated model needs a token (`HF_TOKEN`); both come from the
daemon's environment and reach neither engines nor logs. It may be a directory, too, that holds the answers as files.
"""

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from core.errors import DependencyError, NotFoundError, PermissionError_
from core.files import storage_error
from core.http.client import HttpClient
from engines.sources import HubSource, SourceInvalid, may_fetch, parse_source
from engines.staging import run_to_end

_HUGGING_FACE = "https://huggingface.co"
_TIMEOUT_S = 60.0
_LIMIT_BYTES = 64 << 20
_COMMIT = re.compile(r"[0-9a-f]{40}")
_WANTED = re.compile(r"([^/]+\.(safetensors|json|jinja|model|txt|tiktoken)|tokenizer[^/]*)")
"""Of a whole model: what an engine reads. Weights in other forms (pickles, ONNX, GGUF) are left where they are."""


@dataclass(frozen=True, slots=True)
class Hub:
    """Where models are asked for: an address, or a directory with the same paths below it."""

    endpoint: str = _HUGGING_FACE
    token: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Hub":
        """`HF_ENDPOINT` and `HF_TOKEN`."""
        return cls(environ.get("HF_ENDPOINT", "").rstrip("/") or _HUGGING_FACE, environ.get("HF_TOKEN", "").strip())

    def address(self, source: HubSource, commit: str, name: str) -> str:
        """Where a file of a model lies."""
        return f"{self.endpoint}/{source}/resolve/{commit}/{name}"


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a model."""

    name: str
    size_bytes: int
    digest: str
    kind: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of a model at one commit."""

    commit: str
    files: tuple[HubFile, ...]


class _Lfs(msgspec.Struct, frozen=True):
    sha256: str
    size: int = 0


class _Sibling(msgspec.Struct, frozen=True):
    rfilename: str
    size: int = 0
    blobId: str = ""  # noqa: N815 - the API's own spelling
    lfs: _Lfs | None = None


class _Model(msgspec.Struct, frozen=True):
    sha: str
    siblings: list[_Sibling] = []


async def read_snapshot(http: HttpClient, hub: Hub, source: HubSource) -> Snapshot:
    """Ask which files there are. Raises: NotFoundError, PermissionError_, DependencyError, Unreachable."""
    return choose_files(await read_answer(http, hub, source), source)


async def read_answer(http: HttpClient, hub: Hub, source: HubSource) -> bytes:
    """What the hub says of the model's files, as it says it. Raises: as `read_snapshot`."""
    if hub.endpoint.startswith("/"):
        return await _read_kept(Path(hub.endpoint), source)
    if not may_fetch(hub.endpoint):
        raise DependencyError(f"HF_ENDPOINT {hub.endpoint!r} is not https", code="hub_address_invalid")
    url = f"{hub.endpoint}/api/models/{source}/revision/{source.revision}?blobs=true"
    headers = {"Authorization": f"Bearer {hub.token}"} if hub.token else {}
    reply = await http.fetch("GET", url, headers=headers, timeout_s=_TIMEOUT_S, limit_bytes=_LIMIT_BYTES)
    if reply.status in (401, 403):
        raise PermissionError_(
            f"the model {source} is gated, or does not exist",
            hint="accept its licence on the site, and set HF_TOKEN in the daemon's environment file",
            code="model_gated",
        )
    if reply.status == 404:
        what = f"{source} at revision {source.revision}"
        raise NotFoundError(f"{hub.endpoint} has no model {what}", code="weights_missing")
    if reply.status != 200:
        raise DependencyError(f"{hub.endpoint} answers {reply.status} for {source}", code="hub_failed")
    return reply.body


async def _read_kept(folder: Path, source: HubSource) -> bytes:
    """Raises: NotFoundError, StorageError."""
    path, found = folder / f"api/models/{source}/revision/{source.revision}", bytearray()

    def read(_stop: threading.Event) -> None:
        try:
            with open(path, "rb") as file:
                found.extend(file.read(_LIMIT_BYTES))
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(
                f"there is no model {source} at revision {source.revision}: {path} is missing", code="weights_missing"
            ) from None
        except OSError as error:
            raise storage_error(path, error) from error

    await run_to_end(read)
    return bytes(found)


def choose_files(body: bytes, source: HubSource) -> Snapshot:
    """The files that are wanted of what the API says there are. Pure. Raises: NotFoundError, DependencyError."""
    try:
        model = msgspec.json.decode(body, type=_Model)
    except msgspec.MsgspecError as error:
        raise DependencyError(f"the answer about {source} is not understood: {error}", code="hub_failed") from error
    if not _COMMIT.fullmatch(model.sha):
        raise DependencyError(f"the answer about {source} names no commit", code="hub_failed")
    files = tuple(_read_file(sibling, source) for sibling in model.siblings if _is_wanted(sibling.rfilename, source))
    if source.file and not files:
        raise NotFoundError(f"the model {source} has no file {source.file[:200]!r}", code="weights_missing")
    if not source.file and not any(file.name.endswith(".safetensors") for file in files):
        raise NotFoundError(
            f"the model {source} has no safetensors",
            hint=f"name one file of it, for instance hf:{source}:model-Q4_K_M.gguf",
            code="weights_missing",
        )
    return Snapshot(model.sha, files)


def _is_wanted(name: str, source: HubSource) -> bool:
    return name == source.file if source.file else bool(_WANTED.fullmatch(name))


def _read_file(sibling: _Sibling, source: HubSource) -> HubFile:
    try:
        parse_source(f"hf:{source}:{sibling.rfilename}")
    except SourceInvalid as error:
        raise DependencyError(f"the model {source} has a file with a hostile name", code="hub_failed") from error
    if sibling.lfs is not None and re.fullmatch(r"[0-9a-f]{64}", sibling.lfs.sha256):
        return HubFile(sibling.rfilename, sibling.lfs.size or sibling.size, sibling.lfs.sha256, "sha256")
    if re.fullmatch(r"[0-9a-f]{40}", sibling.blobId):
        return HubFile(sibling.rfilename, sibling.size, sibling.blobId, "git")
    raise DependencyError(f"{source} says no digest of {sibling.rfilename[:100]!r}", code="hub_failed")
