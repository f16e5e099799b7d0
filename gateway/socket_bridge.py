"""A client's websocket to a model's gate: two sockets, and what one says the other is told.

The gate is asked first: what it refuses is then asked again as an ordinary request, so that the client reads the gate's
own answer. Nothing is kept: the gate is read as fast as the client reads, and decides what a slow one misses. A socket
may outlive the key that opened it, so the key is judged again whenever the routes change, and every half minute.
"""

from collections.abc import Callable
from functools import partial

from core.errors import LlmgwError
from core.http.client import HttpClient, MessageStream
from core.http.pool import Target
from core.http.reach import NEAR
from core.http.stream import ClientStream
from core.http.websocket import GOING_AWAY, POLICY, WebSocket, WebSocketClosedError
from core.tasks import run_until_first
from gateway.errors import ApiError
from gateway.state import Routes, RouteState

_JUDGED_AGAIN_S = 30.0
_SENDABLE = frozenset({1000, 1001, 1008, 1009, 1011, 1013})
"""How a gate's socket may end so that the client is told the same."""


def offers_upgrade(client: ClientStream) -> bool:
    """Whether the server lets this request become a websocket."""
    return any(name == b"upgrade" for name, _ in client.headers)


class SocketBridge:
    """One client's."""

    def __init__(self, state: RouteState, target: Target, lines: bytes, may_stay: Callable[[], object]) -> None:
        """`lines`: of the header, for the gate. `may_stay` raises ApiError when the client may not any more."""
        self._state = state
        self._target = target
        self._headers = dict(_split(target.fixed + lines))
        self._may_stay = may_stay

    async def carry(self, client: ClientStream, path: bytes) -> bool:
        """Until one side ends. False: the gate, or the client's handshake, was not taken."""
        if self._target.reach != NEAR:
            return False
        was_taken = False
        host = f"[{self._target.host}]" if ":" in self._target.host else self._target.host
        url = f"http://{host}:{self._target.port}{path.decode('latin-1')}"
        async with HttpClient() as http:
            try:
                async with http.messages(url, headers=self._headers) as gate:
                    socket = client.accept_websocket()
                    was_taken = True
                    await run_until_first(_tell(socket, gate), _hear(socket, gate), self._judge(socket))
                    code = gate.close_code
                    socket.close(code if code in _SENDABLE else GOING_AWAY)
            except LlmgwError:
                if not was_taken:
                    return False
                socket.close(GOING_AWAY, "the engine's gate is gone")
        return True

    async def _judge(self, socket: WebSocket) -> None:
        while True:
            await self._state.wait_until(partial(_is_another, self._state.routes), _JUDGED_AGAIN_S)
            try:
                self._may_stay()
            except ApiError as error:
                socket.close(POLICY, error.code)
                return


async def _tell(socket: WebSocket, gate: MessageStream) -> None:
    try:
        async for message in gate.messages():
            await socket.send(message)
    except WebSocketClosedError:
        return


async def _hear(socket: WebSocket, gate: MessageStream) -> None:
    try:
        while True:
            said = await socket.receive()
            if isinstance(said, str):
                await gate.say(said)
    except WebSocketClosedError:
        return


def _is_another(before: Routes | None, now: Routes) -> bool:
    return now is not before


def _split(lines: bytes) -> list[tuple[str, str]]:
    pairs = (line.decode("latin-1").partition(": ") for line in lines.split(b"\r\n") if line)
    return [(name, value) for name, _, value in pairs]
