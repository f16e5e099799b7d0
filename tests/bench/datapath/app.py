"""The smallest gateway that does what a gateway must: check a key, read the model, replace the key, relay.

The benchmark's lower bound for the real one: what `core.http` and Falcon cost by themselves.
"""

import hashlib
import os

import falcon
import falcon.asgi
import msgspec

from core.http.asgi import SPLICE_EXTENSION, AsgiApp, Receive, Scope, Send
from core.http.plan import Attempt, RelayOutcome, RelayPlan
from core.http.pool import Target, UpstreamPool
from core.http.stream import ClientStream
from gateway.shorten import shorten_strings

FalconApp = falcon.asgi.App[falcon.asgi.Request, falcon.asgi.Response]

PATH = b"/v1/chat/completions"
KEY = "sk-benchmark"
UPSTREAM_VARIABLE = "BENCH_UPSTREAM_PORT"


class Wanted(msgspec.Struct):
    """What a router reads of a body."""

    model: str
    stream: bool | None = None


class OneTarget(RelayPlan):
    """Ask one target, count what it answered."""

    __slots__ = ("_answered", "_target")

    def __init__(self, target: Target, answered: dict[int | None, int]) -> None:
        self._target = target
        self._answered = answered

    def next_target(self, failed: Attempt | None) -> Target | None:
        return self._target if failed is None else None

    def response_headers(self, target: Target) -> bytes:
        return b"x-request-id: 0123456789abcdef\r\n"

    def ended(self, outcome: RelayOutcome) -> None:
        self._answered[outcome.status] = self._answered.get(outcome.status, 0) + 1


class Chat:
    """`POST /v1/chat/completions`, by Falcon or without it: the same decision."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._keys = {hashlib.sha256(f"Bearer {KEY}".encode()).digest()}
        self._decode = msgspec.json.Decoder(Wanted).decode
        self._answered: dict[int | None, int] = {}

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        stream = req.scope["extensions"][SPLICE_EXTENSION]
        if not isinstance(stream, ClientStream):
            raise falcon.HTTPInternalServerError
        plan = self.plan(stream)
        if plan is None:
            raise falcon.HTTPForbidden
        if await stream.relay(plan) is not None:
            raise falcon.HTTPBadGateway

    def plan(self, stream: ClientStream) -> OneTarget | None:
        """None when the key or the body is wrong."""
        for name, value in stream.headers:
            if name == b"authorization" and hashlib.sha256(value).digest() in self._keys:
                break
        else:
            return None
        try:
            self._decode(shorten_strings(stream.body))
        except (msgspec.MsgspecError, RecursionError):
            return None
        return OneTarget(self._target, self._answered)


class Direct:
    """Answers the usual request past Falcon, as the gateway does."""

    def __init__(self, app: FalconApp, chat: Chat) -> None:
        self._app = app
        self._chat = chat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def plan_directly(self, stream: ClientStream) -> OneTarget | None:
        return self._chat.plan(stream) if stream.path == PATH else None


def create_app(*, direct: bool = False) -> AsgiApp:
    pool = UpstreamPool()
    target = pool.target("engine", "127.0.0.1", int(os.environ[UPSTREAM_VARIABLE]), "sk-engine")
    chat = Chat(target)
    app = FalconApp()
    app.add_route(PATH.decode(), chat)
    return Direct(app, chat) if direct else app
