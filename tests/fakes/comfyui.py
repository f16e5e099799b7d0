"""A ComfyUI for tests: a program that answers as ComfyUI 0.3.64 was recorded to, and computes nothing.

It is placed as `main.py` of a source tree and started with ComfyUI's own arguments. Prompts run one after the other;
a node takes no time, but for `Sampler`, whose input `steps` counts messages and whose input `hold` names a file that
it waits for at every step. Saved files are real files below `--base-directory`. Whatever ComfyUI leaks (others'
queue, history, files, uploads, a global interrupt) leaks here, too: it is the gate that must keep callers apart.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

Json = dict[str, Any]
_IMAGE = b"\x89PNG\r\n\x1a\nfake"
_HOLD_POLL_S = 0.01

CLASSES: dict[str, Json] = {
    "EmptyImage": {"input": {"required": {"width": ["INT", {}]}}, "python_module": "nodes"},
    "Sampler": {"input": {"required": {"steps": ["INT", {}], "hold": ["STRING", {}]}}, "python_module": "nodes"},
    "Fail": {"input": {"required": {}}, "python_module": "nodes"},
    "SaveImage": {
        "input": {"required": {"images": ["IMAGE"], "filename_prefix": ["STRING", {"default": "ComfyUI"}]}},
        "python_module": "nodes",
        "output_node": True,
    },
    "PreviewImage": {"input": {"required": {"images": ["IMAGE"]}}, "python_module": "nodes", "output_node": True},
    "LoadImage": {
        "input": {"required": {"image": [["others_secret.png"], {"image_upload": True}]}},
        "python_module": "nodes",
    },
    "LoadImageOutput": {
        "input": {"required": {"image": ["COMBO", {"image_upload": True, "image_folder": "output"}]}},
        "python_module": "nodes",
    },
    "LoadLatent": {"input": {"required": {"latent": [["others.latent"]]}}, "python_module": "nodes"},
    "SaveImageDataSetToFolder": {
        "input": {"required": {"folder_name": ["STRING", {}]}},
        "python_module": "comfy_extras.nodes_dataset",
        "output_node": True,
    },
    "RunPython": {"input": {"required": {"code": ["STRING", {}]}}, "python_module": "custom_nodes.evil"},
    "PaidImage": {"input": {"required": {}}, "python_module": "comfy_api_nodes.nodes_paid"},
}


class Interrupted(Exception):
    """Somebody stopped the running prompt."""


class FakeComfy:
    """See the module."""

    def __init__(self, base: Path, version: str) -> None:
        self.base = base
        self.version = version
        self.pending: list[list[Any]] = []
        self.running: list[Any] | None = None
        self.history: dict[str, Json] = {}
        self.sockets: dict[str, web.WebSocketResponse] = {}
        self.with_facts: set[str] = set()
        self.interrupted = False
        self.asked: list[str] = []
        self._numbers = itertools.count()
        self._temporary = itertools.count(1)
        self._more = asyncio.Event()
        for name in ("input", "output", "temp"):
            (base / name).mkdir(parents=True, exist_ok=True)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=100 << 20, middlewares=[self.note])
        routes = [
            ("POST", "/prompt", self.post_prompt), ("GET", "/prompt", self.get_prompt),
            ("GET", "/queue", self.get_queue), ("POST", "/queue", self.post_queue),
            ("POST", "/interrupt", self.post_interrupt), ("GET", "/history", self.get_history),
            ("GET", "/history/{id}", self.get_history), ("POST", "/history", self.post_history),
            ("GET", "/view", self.get_view), ("POST", "/upload/image", self.post_upload),
            ("GET", "/object_info", self.get_object_info), ("GET", "/system_stats", self.get_stats),
            ("POST", "/free", self.dangerous), ("GET", "/userdata", self.dangerous),
            ("POST", "/customnode/install", self.dangerous), ("GET", "/internal/logs", self.dangerous),
            ("GET", "/ws", self.websocket), ("GET", "/asked", self.get_asked),
        ]  # fmt: skip
        for method, path, handler in routes:
            app.router.add_route(method, path, handler)
            app.router.add_route(method, f"/api{path}", handler)
        app.on_startup.append(self.begin)
        return app

    async def begin(self, app: web.Application) -> None:
        app["worker"] = asyncio.create_task(self.work())

    @web.middleware
    async def note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.rel_url}")
        answer: web.StreamResponse = await handler(request)
        return answer

    # the queue

    async def post_prompt(self, request: web.Request) -> web.Response:
        body = await request.json()
        graph, prompt_id = body.get("prompt"), body.get("prompt_id") or os.urandom(8).hex()
        if not isinstance(graph, dict):
            return web.json_response(
                {"error": {"type": "no_prompt", "message": "No prompt"}, "node_errors": {}}, status=400
            )
        wrong = {
            node_id: {
                "errors": [{"type": "bad", "message": "bad width", "details": "", "extra_info": {"files": ["secret"]}}],
                "dependent_outputs": [],
                "class_type": node["class_type"],
            }
            for node_id, node in graph.items()
            if node["class_type"] == "EmptyImage" and not isinstance(node["inputs"].get("width", 1), int)
        }
        if wrong:
            error = {"type": "prompt_outputs_failed_validation", "message": "Prompt outputs failed validation"}
            return web.json_response(
                {"error": error | {"details": "", "extra_info": {}}, "node_errors": wrong}, status=400
            )
        number = -next(self._numbers) if body.get("front") else body.get("number", next(self._numbers))
        extra = {**body.get("extra_data", {}), "client_id": body.get("client_id")}
        self.pending.append([number, prompt_id, graph, extra, []])
        self.pending.sort(key=lambda entry: entry[0])
        self._more.set()
        return web.json_response({"prompt_id": prompt_id, "number": number, "node_errors": {}})

    async def get_prompt(self, request: web.Request) -> web.Response:
        return web.json_response({"exec_info": {"queue_remaining": len(self.pending) + bool(self.running)}})

    async def get_queue(self, request: web.Request) -> web.Response:
        running = [self.running] if self.running else []
        return web.json_response({"queue_running": running, "queue_pending": self.pending})

    async def post_queue(self, request: web.Request) -> web.Response:
        body = await request.json()
        gone = body.get("delete", [])
        self.pending = [] if body.get("clear") else [entry for entry in self.pending if entry[1] not in gone]
        return web.Response()

    async def post_interrupt(self, request: web.Request) -> web.Response:
        text = await request.text()
        wanted = json.loads(text).get("prompt_id") if text else None
        if self.running and (wanted is None or wanted == self.running[1]):
            self.interrupted = True
        return web.Response()

    async def get_history(self, request: web.Request) -> web.Response:
        wanted = request.match_info.get("id")
        found = {key: value for key, value in self.history.items() if wanted in (None, key)}
        return web.json_response(found)

    async def post_history(self, request: web.Request) -> web.Response:
        self.history.clear()
        return web.Response()

    # files

    async def get_view(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        folder = self.base / query.get("type", "output") / query.get("subfolder", "")
        if ".." in query["filename"] or query["filename"].startswith("/"):
            return web.Response(status=400)
        path = folder / query["filename"]
        if not path.is_file():
            return web.Response(status=404)
        return web.FileResponse(path, headers={"Content-Disposition": f'filename="{path.name}"'})

    async def post_upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        image = form["image"]
        assert isinstance(image, web.FileField)
        folder = self.base / "input" / str(form.get("subfolder", ""))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / image.filename
        count = itertools.count(1)
        while path.exists() and form.get("overwrite") not in ("true", "1"):
            path = folder / f"{Path(image.filename).stem} ({next(count)}){Path(image.filename).suffix}"
        path.write_bytes(image.file.read())
        return web.json_response({"name": path.name, "subfolder": str(form.get("subfolder", "")), "type": "input"})

    async def get_object_info(self, request: web.Request) -> web.Response:
        return web.json_response(CLASSES)

    async def get_stats(self, request: web.Request) -> web.Response:
        return web.json_response({"system": {"comfyui_version": self.version, "argv": ["secret"]}, "devices": []})

    async def get_asked(self, request: web.Request) -> web.Response:
        return web.json_response(self.asked)

    async def dangerous(self, request: web.Request) -> web.Response:
        return web.Response(text="reached")

    # the work

    async def websocket(self, request: web.Request) -> web.WebSocketResponse:
        sid = request.query.get("clientId", "") or os.urandom(8).hex()
        sock = web.WebSocketResponse()
        await sock.prepare(request)
        self.sockets[sid] = sock
        await sock.send_json({"type": "status", "data": {"status": {"exec_info": {"queue_remaining": 0}}, "sid": sid}})
        await sock.send_bytes(b"\0\0\0\1\0\0\0\1preview")
        async for message in sock:
            if message.type is WSMsgType.ERROR:
                break
            flags = json.loads(message.data)
            if flags["type"] == "feature_flags" and self.version >= "0.3.64":
                self.with_facts |= {sid} if flags["data"].get("supports_preview_metadata") else set()
                await sock.send_json({"type": "feature_flags", "data": {"supports_preview_metadata": True}})
        return sock

    async def show(self, step: int) -> None:
        """A preview of the running prompt; the picture says which it is of."""
        assert self.running is not None
        sid, picture = self.running[3].get("client_id") or "", f"{self.running[1]} {step}".encode()
        sock = self.sockets.get(sid)
        if sock is None or sock.closed:
            return
        facts = json.dumps({"prompt_id": self.running[1], "node_id": "2", "image_type": "image/jpeg"}).encode()
        plain = struct.pack(">II", 1, 1) + picture
        told = struct.pack(">II", 4, len(facts)) + facts + picture if sid in self.with_facts else plain
        with contextlib.suppress(ConnectionError):
            await sock.send_bytes(told)

    async def tell(self, kind: str, **data: Any) -> None:
        assert self.running is not None
        sock = self.sockets.get(self.running[3].get("client_id") or "")
        if sock is not None and not sock.closed:
            try:
                await sock.send_json({"type": kind, "data": data | {"prompt_id": self.running[1]}})
            except ConnectionError:
                pass

    async def work(self) -> None:
        while True:
            while not self.pending:
                self._more.clear()
                await self._more.wait()
            self.running, self.interrupted = self.pending.pop(0), False
            prompt_id = self.running[1]
            outputs: Json = {}
            messages: list[list[Any]] = []
            status = "success"
            await self.tell("execution_start", timestamp=0)
            await self.tell("execution_cached", nodes=[], timestamp=0)
            try:
                for node_id, node in self.running[2].items():
                    await self.run_node(node_id, node, outputs)
                await self.tell("execution_success", timestamp=0)
            except Interrupted:
                status = "error"
                messages = [["execution_interrupted", {"prompt_id": prompt_id}]]
                await self.tell("execution_interrupted", node_id="", node_type="", executed=[])
            except ValueError as error:
                status = "error"
                told = {"exception_message": str(error), "node_id": "1", "node_type": "Fail", "traceback": ["/secret"]}
                messages = [["execution_error", told]]
                await self.tell("execution_error", **told)
            entry = {"status_str": status, "completed": status == "success", "messages": messages}
            self.history[prompt_id] = {"prompt": self.running, "outputs": outputs, "status": entry, "meta": {}}
            await self.tell("executing", node=None)
            self.running = None

    async def run_node(self, node_id: str, node: Json, outputs: Json) -> None:
        kind, inputs = node["class_type"], node["inputs"]
        await self.tell("executing", node=node_id, display_node=node_id)
        if self.interrupted:
            raise Interrupted
        if kind == "Fail":
            raise ValueError("out of memory")
        if kind == "Sampler":
            for step in range(1, inputs["steps"] + 1):
                await self.tell("progress", value=step, max=inputs["steps"], node=node_id)
                await self.show(step)
                while inputs.get("hold") and not Path(inputs["hold"]).exists():
                    if self.interrupted:
                        raise Interrupted
                    await asyncio.sleep(_HOLD_POLL_S)
        if kind in ("SaveImage", "PreviewImage"):
            images = [self.save(kind, inputs)]
            outputs[node_id] = {"images": images}
            await self.tell("executed", node=node_id, display_node=node_id, output={"images": images})

    def save(self, kind: str, inputs: Json) -> Json:
        if kind == "PreviewImage":
            name = f"ComfyUI_temp_{next(self._temporary):05}_.png"
            (self.base / "temp" / name).write_bytes(_IMAGE)
            return {"filename": name, "subfolder": "", "type": "temp"}
        prefix = Path(inputs["filename_prefix"])
        folder = self.base / "output" / prefix.parent
        folder.mkdir(parents=True, exist_ok=True)
        name = next(name for name in _names(prefix.name) if not (folder / name).exists())
        (folder / name).write_bytes(_IMAGE)
        subfolder = "" if str(prefix.parent) == "." else str(prefix.parent)
        return {"filename": name, "subfolder": subfolder, "type": "output"}


def _names(stem: str) -> Iterator[str]:
    return (f"{stem}_{number:05}_.png" for number in itertools.count(1))


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--listen")
    parser.add_argument("--port", type=int)
    parser.add_argument("--base-directory", type=Path)
    parser.add_argument("--extra-model-paths-config", nargs="+", type=Path)
    parser.add_argument("--whitelist-custom-nodes", nargs="+", default=[])
    parser.add_argument("--database-url")
    parser.add_argument("--version-told", default="0.3.64")
    for flag in ("--disable-auto-launch", "--disable-api-nodes", "--disable-all-custom-nodes", "--cpu"):
        parser.add_argument(flag, action="store_true")
    given = parser.parse_args()
    for path in given.extra_model_paths_config or []:
        assert re.match(r"llmgw:\n", path.read_text()), path
    fake = FakeComfy(given.base_directory, given.version_told)
    web.run_app(fake.app(), host=given.listen, port=given.port, print=None, access_log=None)


if __name__ == "__main__":
    main()
