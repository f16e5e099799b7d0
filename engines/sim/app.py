"""The simulated engine's HTTP face: a Falcon application.

GET  /health                                public; 503 while loading
GET  /v1/models                             with the key, like all below
POST /v1/chat/completions, /v1/completions  `sim` in the body overrides the behaviour for that request
GET  /metrics
GET  /sim/stats[?closedEarly=N&timeoutS=S]  the counts; with a count, as soon as it is reached
PUT  /sim/behaviour                         the default behaviour from now on
PUT  /sim/health                            {"status": 200, "delayS": 0}
"""

import asyncio
import hmac
import itertools
import socket
import struct
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import cast

import falcon
import falcon.asgi
import msgspec

from core.http.asgi import SPLICE_EXTENSION
from core.http.stream import ClientStream
from engines.sim import dialect
from engines.sim.answer import Answer
from engines.sim.dialect import Request, Writer
from engines.sim.engine import InjectedFault, QueueFull, SimEngine, Stats
from engines.sim.settings import Behaviour

_LINGER_RESET = struct.pack("ii", 1, 0)
_STATS_WAIT_MAX_S = 60.0


AsgiRequest = falcon.asgi.Request
AsgiResponse = falcon.asgi.Response
BugHandler = Callable[
    [AsgiRequest, AsgiResponse | None, BaseException, dict[str, object]], Coroutine[object, object, None]
]
OnBug = Callable[[str, BaseException], None]


def build_app(engine: SimEngine, on_bug: OnBug) -> falcon.asgi.App[falcon.asgi.Request, falcon.asgi.Response]:
    """The ASGI application over one engine; `on_bug` hears of what nobody asked for."""
    app = falcon.asgi.App(middleware=[KeyCheck(engine)])
    app.add_error_handler(Exception, _answer_bug(on_bug))
    app.add_route("/health", Health(engine))
    app.add_route("/v1/models", Models(engine))
    app.add_route("/v1/chat/completions", Generate(engine, is_chat=True))
    app.add_route("/v1/completions", Generate(engine, is_chat=False))
    app.add_route("/metrics", Metrics(engine))
    app.add_route("/sim/stats", StatsRoute(engine))
    app.add_route("/sim/behaviour", BehaviourRoute(engine))
    app.add_route("/sim/health", HealthRoute(engine))
    return app


def refuse(resp: falcon.asgi.Response, status: int, kind: str, message: str) -> None:
    """An error in the envelope that llama.cpp and OpenAI share."""
    resp.status = status
    resp.content_type = falcon.MEDIA_JSON
    resp.data = dialect.error_body(status, kind, message)


def _answer_bug(on_bug: OnBug) -> BugHandler:
    async def handle(
        req: falcon.asgi.Request, resp: falcon.asgi.Response | None, error: BaseException, params: dict[str, object]
    ) -> None:
        on_bug("request_failed", error)
        if resp is not None:
            refuse(resp, 500, "server_error", "the simulated engine has a bug; see its log")

    return handle


class KeyCheck:
    """Demands the key on everything but `/health`, as llama-server does."""

    def __init__(self, engine: SimEngine) -> None:
        self._engine = engine
        self._keys = [key.encode() for key in engine.settings.keys]

    async def process_request(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        if not self._keys or req.path == "/health":
            return
        given = (req.get_header("Authorization") or "").removeprefix("Bearer ") or req.get_header("X-Api-Key") or ""
        # Every key is compared, so that the time says nothing about which one was close.
        matches = [hmac.compare_digest(given.encode("utf-8", "replace"), key) for key in self._keys]
        if not any(matches):
            self._engine.stats.unauthorized += 1
            refuse(resp, 401, "authentication_error", "Invalid API Key")
            resp.complete = True


class Health:
    def __init__(self, engine: SimEngine) -> None:
        self._engine = engine

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        if self._engine.health_delay_s:
            await asyncio.sleep(self._engine.health_delay_s)
        if not self._engine.is_loaded:
            refuse(resp, 503, "unavailable_error", "Loading model")
        elif self._engine.health_status != 200:
            refuse(resp, self._engine.health_status, "server_error", "told to be unwell")
        else:
            resp.content_type = falcon.MEDIA_JSON
            resp.data = b'{"status":"ok"}'


class Models:
    def __init__(self, engine: SimEngine) -> None:
        self._engine = engine

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        settings = self._engine.settings
        rows = [
            {"id": model, "object": "model", "owned_by": "llmgw-sim", "max_model_len": settings.context_length}
            for model in settings.models
        ]
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode({"object": "list", "data": rows})


class Metrics:
    def __init__(self, engine: SimEngine) -> None:
        self._engine = engine

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        resp.content_type = "text/plain; version=0.0.4"
        resp.text = self._engine.metrics()


class StatsRoute:
    def __init__(self, engine: SimEngine) -> None:
        self._engine = engine

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """Each parameter that is a count's name holds the answer back until the count is reached."""
        names = {
            name: field for name, field in zip(Stats().__struct_encode_fields__, Stats.__struct_fields__, strict=True)
        }
        wanted = {names[name]: int(str(value)) for name, value in req.params.items() if name in names}
        timeout_s = min(req.get_param_as_float("timeoutS") or 10.0, _STATS_WAIT_MAX_S)
        stats = await self._engine.wait_stats(
            lambda s: all(getattr(s, field) >= count for field, count in wanted.items()), timeout_s
        )
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(stats)


class BehaviourRoute:
    def __init__(self, engine: SimEngine) -> None:
        self._engine = engine

    async def on_put(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        try:
            self._engine.behaviour = msgspec.json.decode(await req.stream.read(), type=Behaviour)
        except msgspec.MsgspecError as error:
            refuse(resp, 400, "invalid_request_error", str(error))


class HealthChange(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    status: int = 200
    delay_s: float = 0.0


class HealthRoute:
    def __init__(self, engine: SimEngine) -> None:
        self._engine = engine

    async def on_put(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        try:
            change = msgspec.json.decode(await req.stream.read(), type=HealthChange)
        except msgspec.MsgspecError as error:
            refuse(resp, 400, "invalid_request_error", str(error))
            return
        self._engine.health_status, self._engine.health_delay_s = change.status, change.delay_s


class Generate:
    """Both inference routes."""

    def __init__(self, engine: SimEngine, *, is_chat: bool) -> None:
        self._engine = engine
        self._is_chat = is_chat
        self._numbers = itertools.count(1)

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        engine = self._engine
        try:
            request = msgspec.json.decode(await req.stream.read(), type=Request)
            behaviour = request.behaviour(engine.behaviour)
        except msgspec.MsgspecError as error:
            return refuse(resp, 400, "invalid_request_error", str(error))
        prompt, length = dialect.count_prompt(request), dialect.answer_length(request, behaviour)
        if not engine.is_loaded:
            return refuse(resp, 503, "unavailable_error", "Loading model")
        if request.model not in engine.settings.models:
            return refuse(resp, 404, "not_found_error", f"The model `{request.model[:200]}` does not exist.")
        if prompt >= engine.settings.context_length:
            return refuse(resp, 400, "exceed_context_size_error", f"request ({prompt} tokens) exceeds the context size")
        if behaviour.fault == "error":
            engine.stats.failed += 1
            return refuse(resp, behaviour.status, "server_error", "told to fail")
        writer = Writer(
            is_chat=self._is_chat,
            answer_id=f"{'chatcmpl' if self._is_chat else 'cmpl'}-sim-{next(self._numbers)}",
            model=request.model,
            created=int(time.time()),
            length=length,
            behaviour=behaviour,
        )
        return await self._answer(Answer(engine, request, behaviour, prompt, length, writer), req, resp)

    async def _answer(self, answer: Answer, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        try:
            if answer.request.stream:
                resp.content_type = "text/event-stream"
                resp.set_header("Cache-Control", "no-cache")
                # The head waits for the first token, as with llama-server.
                pieces = answer.pieces()
                first = await anext(pieces)
                resp.stream = ClosingStream(first, pieces, _transport(req))
            else:
                resp.content_type = falcon.MEDIA_JSON
                resp.data = await answer.whole()
        except QueueFull:
            resp.set_header("Retry-After", "1")
            refuse(resp, 429, "rate_limit_error", "all slots are busy and the queue is full")
        except InjectedFault as fault:
            _break(_transport(req), fault)


class ClosingStream:
    """An answer's pieces, closed when Falcon is done with them: a bare generator would be left to the collector."""

    def __init__(self, first: bytes, pieces: AsyncGenerator[bytes, None], transport: asyncio.Transport | None) -> None:
        self._first: bytes | None = first
        self._pieces = pieces
        self._transport = transport

    def __aiter__(self) -> "ClosingStream":
        return self

    async def __anext__(self) -> bytes:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        try:
            return await anext(self._pieces)
        except InjectedFault as fault:
            if fault.kind == "reset":
                _break(self._transport, fault)
            raise  # the server then closes without the terminal chunk

    async def close(self) -> None:
        await self._pieces.aclose()


def _transport(req: falcon.asgi.Request) -> asyncio.Transport | None:
    """The client's connection, where our own server serves; faults below HTTP need it."""
    stream = req.scope.get("extensions", {}).get(SPLICE_EXTENSION)
    return cast(ClientStream, stream).connection.transport if stream is not None else None


def _break(transport: asyncio.Transport | None, fault: InjectedFault) -> None:
    if transport is None:
        return
    if fault.kind == "reset":
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
    transport.abort()
