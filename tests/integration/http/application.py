"""What the worker's tests run under gunicorn: told by its environment what to do at startup.

`GET /` tells the worker's pid; `GET /stream` streams until it is released by `GET /release` or the client leaves.
"""

import asyncio
import os
from pathlib import Path

from core.http.asgi import AsgiApp, Receive, Scope, Send


class Application:
    """A bare ASGI application."""

    def __init__(self) -> None:
        self._release = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/release":
            self._release.set()
        if scope["path"] == "/stream":
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            await self._release.wait()
        if scope["path"] == "/crash":
            raise RuntimeError("as it was told")
        await send({"type": "http.response.body", "body": str(os.getpid()).encode()})

    async def _live(self, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] == "lifespan.startup":
            await self._start(send)
        Path(os.environ["TEST_FOLDER"], f"shutdown-{os.getpid()}").touch()
        await send({"type": f"{message['type']}.complete"})

    async def _start(self, send: Send) -> None:
        gate = Path(os.environ["TEST_FOLDER"], "gate")
        Path(os.environ["TEST_FOLDER"], f"starting-{os.getpid()}").touch()
        if os.environ.get("TEST_STARTUP") == "fails" and not gate.exists():  # noqa: ASYNC110 - a file
            await send({"type": "lifespan.startup.failed", "message": "no route table"})
            return
        while os.environ.get("TEST_STARTUP") == "waits" and not gate.exists():  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.01)
        await send({"type": "lifespan.startup.complete"})


def create_app() -> AsgiApp:
    return Application()
