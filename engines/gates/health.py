"""`GET /health` and `GET /v1/models`: the two answers that a gate gives itself."""

from falcon.asgi import Request, Response

from core.errors import LlmgwError
from core.http.client import HttpClient
from engines.gates.answers import write_error, write_json

_ASK_S = 4.0


class Health:
    """Well when the engine is. Public, and says no more than that."""

    def __init__(self, engine: HttpClient, path: str) -> None:
        self._engine = engine
        self._path = path

    async def on_get(self, req: Request, resp: Response) -> None:
        try:
            reply = await self._engine.fetch("GET", self._path, timeout_s=_ASK_S, limit_bytes=1 << 20)
        except LlmgwError:
            write_error(resp, 503, "engine_loading", "The engine does not answer (yet).")
            return
        if reply.status == 200:
            write_json(resp, {"status": "ok"})
        else:
            write_error(resp, reply.status if reply.status >= 500 else 500, "engine_unwell", "The engine is not well.")


class Models:
    """The ids that clients use."""

    def __init__(self, models: tuple[str, ...]) -> None:
        self._rows = [{"id": model, "object": "model", "owned_by": "llmgw"} for model in models]

    async def on_get(self, req: Request, resp: Response) -> None:
        write_json(resp, {"object": "list", "data": self._rows})
