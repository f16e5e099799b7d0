"""Asks the gateway's own application, as a client would: a job is judged, limited, logged and counted like any request.

There is no client to relay to, so the answer is collected here. Cancelling the call closes the engine's request.
"""

import asyncio

from core.http.asgi import AsgiApp, ClientDisconnectedError, Headers, Message
from core.http.request import build_scope
from gateway.errors import envelope
from gateway.jobs.outcome import Answer
from gateway.jobs.ticket import TICKET, Ticket


class ResultTooLarge(Exception):
    """The answer is larger than a result may be."""


async def ask(app: AsgiApp, path: str, headers: Headers, body: bytes, *, ticket: Ticket, limit_bytes: int) -> Answer:
    """One request, its whole answer. Raises: ResultTooLarge."""
    scope = build_scope(b"POST", path.encode("ascii"), b"", "1.1", headers)
    scope |= {"client": None, "server": None, "extensions": {}, TICKET: ticket}
    collector = _Collector(body, limit_bytes)
    try:
        await app(scope, collector.receive, collector.send)
    except ClientDisconnectedError:
        # How an answer ends that broke off: there is no client who could have left.
        broken = envelope(502, "upstream_broken", "The answer broke off: the engine ended before its end.")
        return Answer(502, [], broken)
    return collector.answer()


class _Collector:
    """The client's side of one request."""

    def __init__(self, body: bytes, limit_bytes: int) -> None:
        self._body: bytes | None = body
        self._limit_bytes = limit_bytes
        self._status = 500
        self._headers: Headers = []
        self._parts: list[bytes] = []
        self._size = 0

    async def receive(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            await asyncio.get_running_loop().create_future()  # this client never leaves; its task is cancelled
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            status, headers = message["status"], message.get("headers", ())
            if isinstance(status, int) and isinstance(headers, (list, tuple)):
                self._status, self._headers = status, [(bytes(name), bytes(value)) for name, value in headers]
            return
        data = message.get("body", b"")
        part = data if isinstance(data, bytes) else bytes(data)  # type: ignore[call-overload]  # memoryview
        self._size += len(part)
        if self._size > self._limit_bytes:
            raise ResultTooLarge
        self._parts.append(part)

    def answer(self) -> Answer:
        return Answer(self._status, self._headers, b"".join(self._parts))
