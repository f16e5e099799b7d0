"""In front of Falcon: the one kind of request that is nearly all of them goes to its engine without a detour.

`POST` on an inference path, over our own server, for a model that is ready under the client's own name: the same
decision that the resource would take (`Inference.plan_relay`), and the relay. Everything else is Falcon's: what is
refused, waits, is renamed, or failed on the way.
"""

from typing import cast

from falcon.asgi import App, Request, Response

from core.http.asgi import Receive, Scope, Send
from gateway.relay import explain_failure
from gateway.routes.inference import FAILURE, Inference, RelayFailure, find_client

FalconApp = App[Request, Response]


class FastLane:
    """An ASGI application around the Falcon one."""

    def __init__(self, app: FalconApp, resources: tuple[Inference, ...]) -> None:
        self.app = app
        self._resources = {resource.path: resource for resource in resources}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            resource = self._resources.get(cast(str, scope["path"]))
            client = find_client(scope) if resource is not None else None
            if resource is not None and client is not None:
                plan = resource.plan_relay(scope, client)
                if plan is not None:
                    outcome = await client.relay(plan, path=resource.raw_path)
                    if outcome is None:
                        return
                    scope[FAILURE] = RelayFailure(plan.record, explain_failure(outcome, plan.record.model))
        await self.app(scope, receive, send)
