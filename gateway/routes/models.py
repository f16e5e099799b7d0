"""`GET /v1/models` and `/v1/models/{id}`: what can be asked for here with this key.

In OpenAI's shape, or in Anthropic's for a client that says `anthropic-version`: both APIs have these two paths.
"""

import time

from falcon.asgi import Request, Response

from gateway.boundary import asks_anthropic
from gateway.guard import Guard
from gateway.lookup import find_model, list_visible
from gateway.node_view import list_model
from gateway.translate.models import describe_model, list_page


class Models:
    """The list. Made from the table alone: no engine is asked, so no odd or silent engine can spoil it."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def on_get(self, req: Request, resp: Response) -> None:
        routes, grant = self._guard.admit_reader(req)
        listed = list_visible(routes.lookup, grant)
        if asks_anthropic(req):
            limit, after_id, before_id = (
                req.get_param(name, default="") for name in ("limit", "after_id", "before_id")
            )
            resp.media = list_page(listed, limit=limit, after_id=after_id, before_id=before_id)
            return
        now_s = int(time.time())
        resp.media = {"object": "list", "data": [list_model(model, now_s) for model in listed]}

    on_head = on_get


class OneModel:
    """One model by id or alias; ids may contain slashes."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def on_get(self, req: Request, resp: Response, model_id: str) -> None:
        routes, grant = self._guard.admit_reader(req)
        entry = find_model(routes.lookup, grant, model_id)
        if asks_anthropic(req):
            resp.media = describe_model(entry.model, model_id)
        else:
            resp.media = list_model(entry.model, int(time.time())) | {"id": model_id}

    on_head = on_get
