"""`POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's API, over engines that speak it and others.

Who may ask, which target answers and when are the same as for every inference path. Where each target speaks the
dialect under the client's own name for the model, the answer is relayed as it is; else it passes through
`gateway.messages`. Errors are Anthropic's, whoever they come from.
"""

from falcon.asgi import Request, Response

from core.http.plan import Refusal, RelayOutcome
from gateway.dialects import is_own_everywhere
from gateway.edited import EditedAnswer
from gateway.messages import MessagesEdit, MessagesPlan
from gateway.relay import InferencePlan
from gateway.routes.inference import Inference, find_client
from gateway.table import ModelEntry
from gateway.translate.messages_errors import translate_refusal


class Messages(Inference):
    """One path of Anthropic's API."""

    plan_type = MessagesPlan

    async def _answer(
        self, plan: InferencePlan, entry: ModelEntry, asked: str, body: bytes, req: Request, resp: Response
    ) -> RelayOutcome | None:
        client = find_client(req.scope)
        is_own = is_own_everywhere(entry, self.path)
        if client is None or not is_own or entry.is_renamed or asked != entry.model.id:
            return await EditedAnswer(plan, MessagesEdit(self.path, entry, asked, body)).respond(req, resp)
        return await client.relay(plan, path=self.raw_path)

    def _word_refusal(self, refusal: Refusal) -> bytes:
        return translate_refusal(refusal.status, refusal.body)
