"""A ComfyUI, by default a fake one, and its gate as real processes, and two callers of it."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from core.caller import CALLER, caller_mark
from tests.integration.daemon.stack import ROOT, free_port

FAKE = ROOT / "tests" / "fakes" / "comfyui.py"
KEY = "sk-gate-test"
_PATIENCE_S = 30.0
Json = dict[str, Any]


class Ear:
    """One websocket of a caller's, and all that it heard."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.heard: list[Json] = []
        self.pictures: list[bytes] = []

    async def until(self, kind: str, **data: object) -> Json:
        """The next message of this kind with these data."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                message = await self.next()
                if message is not None and message["type"] == kind and data.items() <= message["data"].items():
                    return message

    async def until_over(self, prompt_id: str) -> str:
        """The last word on a prompt: the kind of message that says how it ended."""
        await self.until("executing", node=None, prompt_id=prompt_id)
        about = [said for said in self.heard if said["data"].get("prompt_id") == prompt_id]
        return str(about[-2]["type"])

    async def next(self) -> Json | None:
        """What comes next: a message, or None for a picture."""
        message = await asyncio.wait_for(self.socket.receive(), _PATIENCE_S)
        if message.type is aiohttp.WSMsgType.BINARY:
            self.pictures.append(message.data)
            return None
        assert message.type is aiohttp.WSMsgType.TEXT, (message, self.socket.close_code)
        self.heard.append(json.loads(message.data))
        return self.heard[-1]

    def prompts(self) -> set[str]:
        """The ids that it heard of."""
        return {str(said["data"]["prompt_id"]) for said in self.heard if "prompt_id" in said["data"]}

    def kinds(self) -> list[str]:
        return [str(message["type"]) for message in self.heard]


class Caller:
    """Somebody with a key of the gateway's, as the gate sees them."""

    def __init__(self, session: aiohttp.ClientSession, url: str, name: str) -> None:
        self.session = session
        self.url = url
        self.mark = caller_mark(name)
        self.headers = {"authorization": f"Bearer {KEY}", CALLER: self.mark}

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Status and body, decoded where it is JSON."""
        async with self.session.request(
            method, self.url + path, json=body, headers={**self.headers, **headers}
        ) as answer:
            data = await answer.read()
            is_json = answer.content_type == "application/json" and data
            return answer.status, json.loads(data) if is_json else data

    async def prompt(self, graph: Json, **more: object) -> str:
        status, told = await self.ask("POST", "/prompt", {"prompt": graph, **more})
        assert status == 200, told
        return str(told["prompt_id"])

    async def upload(self, picture: bytes, filename: str = "photo.png") -> Json:
        """What is told of an uploaded file."""
        form = aiohttp.FormData({"overwrite": "false", "type": "input"})
        form.add_field("image", picture, filename=filename, content_type="image/png")
        async with self.session.post(f"{self.url}/upload/image", data=form, headers=self.headers) as answer:
            assert answer.status == 200, await answer.text()
            return dict(await answer.json())

    @contextlib.asynccontextmanager
    async def listen(self, client_id: str = "", path: str = "/ws") -> AsyncIterator[Ear]:
        """A websocket that has heard the first message."""
        query = f"?clientId={client_id}" if client_id else ""
        async with self.session.ws_connect(f"{self.url}{path}{query}", headers=self.headers) as socket:
            ear = Ear(socket)
            await ear.until("status")
            yield ear

    async def until(self, prompt_id: str, holds: Callable[[Json], bool]) -> Json:
        """Its progress, once it is as wanted."""
        told: Any = None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while True:
                    status, told = await self.ask("GET", f"/progress/{prompt_id}")
                    if status == 200 and holds(told):
                        return dict(told)
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"never happened: {told}") from None

    async def until_state(self, prompt_id: str, state: str) -> Json:
        return await self.until(prompt_id, lambda told: bool(told["state"] == state))


class Bench:
    """The two processes. Nothing survives the block."""

    def __init__(self, folder: Path, version: str = "0.3.64", arguments: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.base = folder / "base"
        self.key_file = folder / "key"
        self.engine_port, self.port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.engine_url = f"http://127.0.0.1:{self.engine_port}"
        self.engine: asyncio.subprocess.Process | None = None
        self.gate: asyncio.subprocess.Process | None = None
        self._version = version
        self._arguments = arguments

    async def __aenter__(self) -> "Bench":
        self.session = aiohttp.ClientSession()
        self.key_file.write_text(f"{KEY}\n")
        try:
            await self.start_engine()
            await self.start_gate()
        except BaseException:
            await self.__aexit__()
            raise
        self.ada, self.bob = self.caller("ada"), self.caller("bob")
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in (self.gate, self.engine):
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()
        await self.session.close()

    def caller(self, name: str) -> Caller:
        return Caller(self.session, self.url, name)

    async def start_engine(self) -> None:
        self.engine = await self._spawn(
            str(FAKE), "--listen", "127.0.0.1", "--port", str(self.engine_port),
            "--base-directory", str(self.base), "--version-told", self._version,
        )  # fmt: skip
        await self._answering(f"{self.engine_url}/system_stats")

    async def start_gate(self) -> None:
        self.gate = await self.spawn_gate()
        await self._answering(f"{self.url}/health")

    async def spawn_gate(self) -> asyncio.subprocess.Process:
        return await self._spawn(
            "-m", "engines.gates", "comfyui", "--port", str(self.port), "--engine-port", str(self.engine_port),
            "--key-file", str(self.key_file), "--state", str(self.folder / "state"), "--model=art",
            "--base", str(self.base), "--free-mib", "1",
            "--engine-health", "/system_stats", *self._arguments,
        )  # fmt: skip

    async def kill(self, process: asyncio.subprocess.Process | None) -> None:
        assert process is not None
        process.send_signal(signal.SIGKILL)
        await process.wait()

    async def until_sockets(self, count: int) -> None:
        """Until so many websockets of callers are open."""
        async with asyncio.timeout(_PATIENCE_S):
            while f"llmgw_gate_sockets {count}\n".encode() not in (await self.ada.ask("GET", "/metrics"))[1]:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)

    async def asked(self) -> list[str]:
        """What ComfyUI was asked so far."""
        async with self.session.get(f"{self.engine_url}/asked") as answer:
            return list(await answer.json())

    async def _spawn(self, *words: str) -> asyncio.subprocess.Process:
        with open(self.folder / "log", "ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, *words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log
            )

    async def _answering(self, url: str, *, within_s: float = _PATIENCE_S) -> None:
        try:
            async with asyncio.timeout(within_s):
                while True:
                    with contextlib.suppress(aiohttp.ClientError):
                        async with self.session.get(url) as answer:
                            if answer.status == 200:
                                return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{url} never answered:\n{(self.folder / 'log').read_text()}") from None


@contextlib.asynccontextmanager
async def running(folder: Path, *arguments: str, version: str = "0.3.64") -> AsyncIterator[Bench]:
    async with Bench(folder, version, arguments) as bench:
        yield bench


def handshake(target: str, headers: Mapping[str, str]) -> bytes:
    """A request for a websocket, byte for byte."""
    fields = {
        "Host": "x", "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **headers,
    }  # fmt: skip
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode()


def picture(prefix: str = "cat") -> Json:
    """A workflow that ends at once."""
    return {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 8}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": prefix}},
    }


def long_picture(hold: Path, steps: int = 4) -> Json:
    """A workflow that stands at its first step until there is a file of that name."""
    return {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 8}},
        "2": {"class_type": "Sampler", "inputs": {"image": ["1", 0], "steps": steps, "hold": str(hold)}},
        "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "slow"}},
    }
