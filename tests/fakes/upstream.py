"""An engine for relay tests: answers as it is told to, and counts what it sees. Real HTTP on a real port.

It is not the sim engine: it can be wrong in ways in which no engine of ours may be (401 to a right key, a body cut
in the middle, a socket that is closed on accept), and it records every request byte for byte.
"""

import asyncio
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web


@dataclass
class Seen:
    """One request as it arrived."""

    path: str
    """With its query, as it was sent."""
    headers: dict[str, str]
    body: bytes


@dataclass
class Behaviour:
    """How to answer. Change it at any time; it counts for the next request."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    """Of a plain answer; empty: a chat completion that names the model it was asked for."""
    pieces: int = 5
    """Events of a stream."""
    pause_s: float = 0.0
    """Between two events."""
    head_pause_s: float = 0.0
    """Before the head."""
    tail_pause_s: float = 0.0
    """Before the second half of a plain answer's body."""
    break_after: int | None = None
    """Cut the connection after so many events."""
    finish: str = ""
    """The `finish_reason` of an event of its own at the end of a stream; translators take none for a broken stream."""
    model: str = ""
    """The name in answers; empty: the one asked for."""


class FakeUpstream:
    """See the module. Use as an async context manager; `port` is the kernel's choice."""

    def __init__(self, behaviour: Behaviour | None = None, *, certificate: Path | None = None) -> None:
        """With a certificate (and its key in the same file) it speaks TLS."""
        self.certificate = certificate
        self.behaviour = behaviour or Behaviour()
        self.seen: list[Seen] = []
        self.open = 0
        self.abandoned = 0
        """Requests whose client went away before their end."""
        self.halves = 0
        """Plain answers whose first half was sent, where there is a pause after it."""
        self.port = 0
        self._changed = asyncio.Condition()
        self._released = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "FakeUpstream":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on the same port as before."""
        app = web.Application(client_max_size=100 << 20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._tls())
        await site.start()
        self.port = self._runner.addresses[0][1]

    def _tls(self) -> ssl.SSLContext | None:
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        return context

    async def stop(self) -> None:
        """As a crash looks: connections are cut, and new ones refused."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait for the counters to satisfy `holds`."""
        async with self._changed:
            await self._changed.wait_for(holds)

    def release(self) -> None:
        """End all pauses, and have no more of them."""
        self._released.set()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._released.wait()
        except TimeoutError:
            pass

    async def _note(self, opened: int, abandoned: int = 0) -> None:
        self.open += opened
        self.abandoned += abandoned
        async with self._changed:
            self._changed.notify_all()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.seen.append(Seen(request.raw_path, dict(request.headers), body))
        await self._note(+1)
        finished = False
        try:
            response = await self._respond(request, body)
            finished = True
            return response
        finally:
            await asyncio.shield(self._note(-1, 0 if finished else 1))

    async def _respond(self, request: web.Request, body: bytes) -> web.StreamResponse:
        how = self.behaviour
        asked = json.loads(body)
        model = how.model or asked.get("model")
        await self._pause(how.head_pause_s)
        if asked.get("stream") and how.status == 200:
            return await self._stream(request, how, model)
        plain = how.body or json.dumps(completion(model)).encode()
        if how.tail_pause_s:
            return await self._halve(request, how, plain)
        return web.Response(status=how.status, body=plain, content_type="application/json", headers=how.headers)

    async def _halve(self, request: web.Request, how: Behaviour, body: bytes) -> web.StreamResponse:
        fields = {"content-type": "application/json", "content-length": str(len(body))}
        response = web.StreamResponse(status=how.status, headers=fields | how.headers)
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
        self.halves += 1
        await self._note(0)
        await self._pause(how.tail_pause_s)
        await response.write(body[len(body) // 2 :])
        await response.write_eof()
        return response

    async def _stream(self, request: web.Request, how: Behaviour, model: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"} | how.headers)
        await response.prepare(request)
        for number in range(how.pieces):
            if number == how.break_after and request.transport is not None:
                request.transport.abort()
            await response.write(b"data: " + json.dumps(chunk(model, f"w{number} ")).encode() + b"\n\n")
            await self._pause(how.pause_s)
        if how.finish:
            last = chunk(model, "", how.finish)
            await response.write(b"data: " + json.dumps(last).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def completion(model: str) -> dict[str, object]:
    """A chat completion in OpenAI's shape."""
    message = {"role": "assistant", "content": "Paris"}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def chunk(model: str, text: str, finish: str = "") -> dict[str, object]:
    """One event of a streamed chat completion."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish or None}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}
