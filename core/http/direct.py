"""A way past ASGI for the requests whose whole answer is a relay.

An ASGI application that also has `plan_directly` is asked by it first, without a task and without a coroutine: that
is half of what a short request costs us. It returns a plan only for what needs no waiting and will be relayed; for
all else None, and is then called as any other application. So it is when no target gave a response:
`ClientStream.failure` tells it then.
"""

from typing import Protocol, runtime_checkable

from core.http.asgi import Receive, Scope, Send
from core.http.plan import RelayPlan
from core.http.stream import ClientStream


@runtime_checkable
class StreamedApp(Protocol):
    """An application that reads some bodies while they arrive."""

    streamed_paths: frozenset[bytes]
    """Where forms (`multipart/form-data`) are posted to; their requests carry `ClientStream.incoming`."""


@runtime_checkable
class WebSocketApp(Protocol):
    """An application that has websockets (`core.http.websocket`)."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def takes_websocket(self, path: bytes) -> bool:
        """Whether a request for this path may become one. For all others the offer is not seen."""


@runtime_checkable
class DirectApp(Protocol):
    """See the module."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def plan_directly(self, stream: ClientStream) -> RelayPlan | None:
        """Must not block; what it raises is reported, and the application is called."""
