"""The smallest gateway that does what a gateway must: check a key, read the model, replace the key, relay.

The benchmark's lower bound for the real one: what `core.http` and Falcon cost by themselves.
"""

import hashlib
import os

import falcon
import falcon.asgi
import msgspec

from core.http.asgi import SPLICE_EXTENSION
from core.http.plan import Attempt, RelayOutcome, RelayPlan
from core.http.pool import Target, UpstreamPool
from core.http.stream import ClientStream

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
    """`POST /v1/chat/completions`."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._keys = {hashlib.sha256(f"Bearer {KEY}".encode()).digest()}
        self._decode = msgspec.json.Decoder(Wanted).decode
        self._answered: dict[int | None, int] = {}

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        if hashlib.sha256(req.get_header("authorization", default="").encode()).digest() not in self._keys:
            raise falcon.HTTPUnauthorized
        stream = req.scope["extensions"][SPLICE_EXTENSION]
        if not isinstance(stream, ClientStream):
            raise falcon.HTTPInternalServerError
        try:
            self._decode(stream.body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise falcon.HTTPBadRequest from error
        outcome = await stream.relay(OneTarget(self._target, self._answered))
        if outcome is not None:
            raise falcon.HTTPBadGateway


def create_app() -> falcon.asgi.App[falcon.asgi.Request, falcon.asgi.Response]:
    pool = UpstreamPool()
    target = pool.target("engine", "127.0.0.1", int(os.environ[UPSTREAM_VARIABLE]), "sk-engine")
    app: falcon.asgi.App[falcon.asgi.Request, falcon.asgi.Response] = falcon.asgi.App()
    app.add_route("/v1/chat/completions", Chat(target))
    return app
