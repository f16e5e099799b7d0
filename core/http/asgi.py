"""The ASGI types that the server speaks, and the names of the two extensions that it offers.

`scope["extensions"]["llmgw.peer"]` is a `Peer` on unix sockets; `scope["extensions"]["llmgw.splice"]` is a
`core.http.stream.ClientStream` on every HTTP request. An application that finds neither is served by another
ASGI server and must do without.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass

Scope = dict[str, object]
Message = MutableMapping[str, object]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
"""Names in lower case, in the order of arrival."""

PEER_EXTENSION = "llmgw.peer"
SPLICE_EXTENSION = "llmgw.splice"
VERSIONS = {"version": "3.0", "spec_version": "2.4"}


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of a unix socket, as the kernel knows it (SO_PEERCRED at connect time)."""

    pid: int
    uid: int
    gid: int


class ClientDisconnectedError(ConnectionError):
    """Raised by `send` when nobody is left to read the answer, as ASGI 2.4 asks (an `OSError`)."""
