"""`POST /v1/responses`: OpenAI's newer API, over engines that speak it and others.

As for Anthropic's: relayed where every target speaks it under the client's own name, else `gateway.responses`. Nothing
is stored, so a response can be had once, by who asked for it.
"""

import time

from falcon.asgi import Request, Response

from core.http.plan import RelayOutcome
from gateway.dialects import is_own_everywhere
from gateway.edited import EditedAnswer
from gateway.relay import InferencePlan
from gateway.responses import ResponsesEdit
from gateway.routes.inference import Inference, find_client
from gateway.table import ModelEntry


class Responses(Inference):
    """The one path."""

    async def _answer(
        self, plan: InferencePlan, entry: ModelEntry, asked: str, body: bytes, req: Request, resp: Response
    ) -> RelayOutcome | None:
        client = find_client(req.scope)
        is_own = is_own_everywhere(entry, self.path)
        if client is not None and is_own and not entry.is_renamed and asked == entry.model.id:
            return await client.relay(plan, path=self.raw_path)
        edit = ResponsesEdit(self.path, entry, asked, body, created_s=int(time.time()))
        return await EditedAnswer(plan, edit).respond(req, resp)
