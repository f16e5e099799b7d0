"""`POST /v1/workflows`: an inference path as all others, which also tells a job how far its workflow is.

A workflow is the work of minutes, and its gate knows the node that runs, its step, and what is ahead: it is asked
under the request's id while a job waits for the answer. A client's own request can be followed the same way by the
client (`/v1/comfyui/MODEL/progress/ID`), so nothing is asked for it here.
"""

import asyncio

import msgspec
from falcon.asgi import Request, Response

from core.caller import caller_lines
from core.http.exchange import ExchangeError, exchange
from core.http.plan import RelayOutcome
from gateway.jobs.ticket import Ticket, find_ticket
from gateway.relay import InferencePlan
from gateway.routes.inference import Inference
from gateway.table import ModelEntry

_LOOK_S = 0.5
_ASK_S = 5.0
_LARGEST_BYTES = 64 << 10
_MAX_WORD = 80


class RunningNode(msgspec.Struct, rename="camel"):
    class_type: str = ""


class GateProgress(msgspec.Struct, rename="camel"):
    """What is read of a gate's `/progress/{id}`."""

    state: str = ""
    ahead: int | None = None
    node: RunningNode | None = None
    step: float | None = None
    steps: float | None = None
    percent: float = 0.0


class Workflows(Inference):
    """See the module."""

    async def _answer(  # noqa: PLR0913 - as the base class
        self, plan: InferencePlan, entry: ModelEntry, asked: str, body: bytes, req: Request, resp: Response
    ) -> RelayOutcome | None:
        ticket = find_ticket(req.scope)
        if ticket is None:
            return await super()._answer(plan, entry, asked, body, req, resp)
        following = asyncio.get_running_loop().create_task(self._follow(ticket, plan))
        try:
            return await super()._answer(plan, entry, asked, body, req, resp)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self, ticket: Ticket, plan: InferencePlan) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            told = await self._ask(plan)
            if told is not None:
                ticket.tell(describe_progress(told), told.percent)

    async def _ask(self, plan: InferencePlan) -> GateProgress | None:
        """What the gate says now; None when it does not."""
        routes, record = self._state.routes, plan.record
        upstream = routes.upstreams.get(plan.asked) if routes is not None else None
        if upstream is None:
            return None
        path, lines = f"/progress/{record.request_id}".encode("ascii"), caller_lines(record.key, record.request_id)
        try:
            async with asyncio.timeout(_ASK_S):
                async with exchange(
                    upstream.target, method=b"GET", path=path, headers=[], body=b"", added=lines
                ) as answer:
                    data = await answer.read(_LARGEST_BYTES)
                    return msgspec.json.decode(data, type=GateProgress) if answer.status == 200 else None
        except (ExchangeError, TimeoutError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return None


def describe_progress(told: GateProgress) -> str:
    """A job's step, in words. Pure."""
    if told.state == "queued":
        return f"waits, {told.ahead} ahead" if told.ahead else "waits"
    if told.node is None:
        return told.state[:_MAX_WORD]
    name = told.node.class_type[:_MAX_WORD] or "a node"
    return f"{name} {told.step:g}/{told.steps:g}" if told.step is not None and told.steps else name
