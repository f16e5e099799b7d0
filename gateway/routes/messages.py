"""`POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's API, over engines that speak it and others.

Who may ask, which target answers and when are the same as for every inference path. Where each target speaks the
dialect under the client's own name for the model, the answer is relayed as it is; else it passes through
`gateway.messages`. Errors are Anthropic's, whoever they come from.
"""

import falcon
from falcon.asgi import Request, Response

from core.http.plan import Refusal, RelayOutcome
from core.http.pool import Target
from gateway.dialects import is_own_everywhere
from gateway.edited import EditedAnswer
from gateway.messages import MessagesEdit, MessagesPlan
from gateway.relay import InferencePlan
from gateway.routes.inference import Inference, find_client
from gateway.table import ModelEntry
from gateway.translate.messages_errors import translate_refusal

_KEPT = frozenset({b"retry-after"})
"""What a client may do with an engine's refusal; all else described its body."""


class Messages(Inference):
    """One path of Anthropic's API."""

    plan_type = MessagesPlan

    async def _answer(
        self, plan: InferencePlan, entry: ModelEntry, asked: str, body: bytes, req: Request, resp: Response
    ) -> RelayOutcome | None:
        client = find_client(req.scope)
        is_own = is_own_everywhere(entry, self.path)
        if client is None or not is_own or entry.is_renamed or asked != entry.model.id:
            await EditedAnswer(plan, MessagesEdit(self.path, entry, asked, body)).respond(req, resp)
            return None
        outcome = await client.relay(plan, path=self.raw_path)
        if outcome is None or outcome.refusal is None or outcome.target is None:
            return outcome
        self._pass_refusal(plan, outcome.target, outcome.refusal, resp)
        return None

    def _pass_refusal(self, plan: InferencePlan, target: Target, refusal: Refusal, resp: Response) -> None:
        """The engine's own word against the request, in Anthropic's envelope."""
        record = plan.record
        record.status = refusal.status
        resp.status = refusal.status
        resp.content_type = falcon.MEDIA_JSON
        for name, value in refusal.headers:
            if name in _KEPT:
                resp.set_header(name.decode("latin-1"), value.decode("latin-1"))
        for line in plan.response_headers(target).split(b"\r\n")[:-1]:
            name, _, value = line.partition(b": ")
            resp.set_header(name.decode("latin-1"), value.decode("latin-1"))
        resp.data = translate_refusal(refusal.status, refusal.body)
        self._dispatcher.endings.tell(record)
