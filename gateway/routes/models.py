"""`GET /v1/models` and `/v1/models/{id}`: what can be asked for here, in OpenAI's shape."""

import time

from falcon.asgi import Request, Response

from gateway.auth import Access
from gateway.errors import unknown_model
from gateway.guard import Guard
from gateway.node_view import list_model


class Models:
    """The list. Made from the table alone: no engine is asked, so no odd or silent engine can spoil it."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def on_get(self, req: Request, resp: Response) -> None:
        routes = self._guard.admit_request(Access.INFERENCE, req)
        now_s = int(time.time())
        resp.media = {"object": "list", "data": [list_model(model, now_s) for model in routes.lookup.listed]}

    on_head = on_get


class OneModel:
    """One model by id or alias; ids may contain slashes."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def on_get(self, req: Request, resp: Response, model_id: str) -> None:
        routes = self._guard.admit_request(Access.INFERENCE, req)
        entry = routes.lookup.models.get(model_id)
        if entry is None:
            raise unknown_model(model_id)
        resp.media = list_model(entry.model, int(time.time())) | {"id": model_id}

    on_head = on_get
