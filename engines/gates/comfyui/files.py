"""Routes about files: `/view` of the caller's own, `POST /upload/image` into the caller's own folder, `GET /files`."""

import uuid
from urllib.parse import urlencode

import falcon
import msgspec
from falcon.asgi import Request, Response

from core.errors import NotFoundError
from core.http.pool import Target
from engines.gates.answers import write_json
from engines.gates.comfyui.asking import RequestInvalid, read_caller, read_query
from engines.gates.comfyui.desk import Desk
from engines.gates.comfyui.engine import ComfyEngine, EngineRefused, decode_answer
from engines.gates.comfyui.places import File, may_view, require_upload
from engines.gates.comfyui.shelf import Shelf
from engines.gates.comfyui.stock import Kept
from engines.gates.passing import pass_on

_VIEW = frozenset({"filename", "subfolder", "type", "preview", "channel", "rand"})
_PLACE = frozenset({"filename", "subfolder", "type"})
_PASSED = ("preview", "channel")
_LISTED = 1000
_UPLOAD_S = 120.0
_LARGEST = 50 << 20
_FALSE = frozenset({"", "false", "0"})


class FileUnknown(NotFoundError):
    """The caller has no such file."""

    code = "workflow_file_unknown"


class View:
    """`/view`. A file that is not the caller's and one that is not there are the same to it."""

    def __init__(self, desk: Desk, shelf: Shelf, target: Target) -> None:
        self._desk = desk
        self._shelf = shelf
        self._target = target

    async def on_delete(self, req: Request, resp: Response) -> None:
        """Throw a file away: what is kept counts."""
        file = self._find(read_caller(req), read_query(req, _PLACE))
        kept = Kept(file.folder, f"{file.subfolder}/{file.name}".lstrip("/"), 0, 0.0)
        if not await self._shelf.remove(kept):
            raise _unknown(file)
        resp.status = falcon.HTTP_204

    def _find(self, caller: str, query: dict[str, str]) -> File:
        """Raises: FileUnknown."""
        file = File(query.get("filename", ""), query.get("subfolder", ""), query.get("type", "output"))
        if not may_view(caller, file, self._desk.temporary_files(caller) if file.folder == "temp" else ()):
            raise _unknown(file)
        return file

    async def on_get(self, req: Request, resp: Response) -> None:
        query = read_query(req, _VIEW)
        file = self._find(read_caller(req), query)
        asked = {"filename": file.name, "subfolder": file.subfolder, "type": file.folder}
        asked.update({name: query[name] for name in _PASSED if name in query})
        await pass_on(req, resp, self._target, b"/view?" + urlencode(asked).encode("ascii"))


class Files:
    """`GET /files`: what the caller keeps, and how much it may."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def on_get(self, req: Request, resp: Response) -> None:
        read_query(req, frozenset())
        used, files = await self._shelf.list_of(read_caller(req))
        allowance = self._shelf.allowance
        told = {
            "used_bytes": used,
            "limit_bytes": allowance.caller_bytes,
            "keep_hours": allowance.keep_s / 3600.0,
            "count": len(files),
            "files": [_describe(file) for file in files[:_LISTED]],
        }
        write_json(resp, told)


def _describe(file: Kept) -> dict[str, object]:
    # A node may have given it a name that is no text.
    subfolder, _, name = file.path.encode("utf-8", "replace").decode().rpartition("/")
    place = {"filename": name, "subfolder": subfolder, "type": file.folder}
    return {**place, "bytes": file.size_bytes, "modified_at": int(file.changed_s)}


def _unknown(file: File) -> FileUnknown:
    return FileUnknown(f"you have no file {file.name[:80]!r} there")


class _Uploaded(msgspec.Struct):
    name: str


class Upload:
    """`/upload/image`. Nothing is ever overwritten: a name that is taken comes back with a number."""

    def __init__(self, engine: ComfyEngine, shelf: Shelf) -> None:
        self._engine = engine
        self._shelf = shelf

    async def on_post(self, req: Request, resp: Response) -> None:
        caller = read_caller(req)
        name, data = await _read_form(req, caller)
        boundary = uuid.uuid4().hex
        async with self._shelf.admit_upload(caller, len(data)):
            reply = await self._engine.http.fetch(
                "POST",
                "/upload/image",
                headers={"Content-Type": f"multipart/form-data; boundary={boundary}"},
                body=_write_form(boundary, caller, name, data),
                timeout_s=_UPLOAD_S,
            )
        if reply.status != 200:
            raise EngineRefused(f"ComfyUI answered an upload with {reply.status}")
        stored = decode_answer(_Uploaded, reply.body, "/upload/image").name
        write_json(resp, {"name": stored, "subfolder": caller, "type": "input"})


async def _read_form(req: Request, caller: str) -> tuple[str, bytes]:
    """Name and content of the one file. Raises: RequestInvalid, FileRefused, falcon.HTTPError."""
    if not (req.content_type or "").lower().startswith("multipart/form-data"):
        raise RequestInvalid("an upload is multipart/form-data")
    found: tuple[str, bytes] | None = None
    async for part in await req.get_media():
        if part.name == "image" and found is None:
            name = part.filename or ""
            require_upload(name)
            data = bytes(await part.stream.read(_LARGEST + 1))
            if len(data) > _LARGEST:
                raise RequestInvalid(f"a file may have {_LARGEST >> 20} MiB")
            found = name, data
            continue
        value = (await part.stream.read(256)).decode("utf-8", "replace")
        if not _is_harmless(part.name or "", value, caller):
            raise RequestInvalid(f"the field {str(part.name)[:40]!r} cannot be {value[:40]!r} here")
    if found is None:
        raise RequestInvalid("there is no file in the field image")
    return found


def _is_harmless(field: str, value: str, caller: str) -> bool:
    """Fields that say what would be done anyway."""
    if field == "overwrite":
        return value.lower() in _FALSE
    if field == "type":
        return value in ("", "input")
    return field == "subfolder" and value in ("", caller)


def _write_form(boundary: str, caller: str, name: str, data: bytes) -> bytes:
    """The form as ComfyUI is sent it. The name was judged: it has no quotes and no line breaks."""
    lines = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'
        for field, value in (("type", "input"), ("subfolder", caller))
    ]
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="image"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    return "".join([*lines, head]).encode() + data + f"\r\n--{boundary}--\r\n".encode()
