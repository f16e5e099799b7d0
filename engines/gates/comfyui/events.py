"""`GET /ws`: a caller's websocket, as clients of ComfyUI know it, with the caller's own prompts and nothing else.

It is a request like any other until it is taken: the key, the path and the caller's mark have been judged, and who has
too many sockets hears so in an answer. What clients say on it is read and means nothing, but for the question what the
server can.
"""

import re

from falcon.asgi import Request, Response

from core.errors import BugError
from core.http.asgi import SPLICE_EXTENSION
from core.http.stream import ClientStream
from core.http.websocket import TRY_LATER, WebSocket, WebSocketClosedError
from core.tasks import run_until_first
from engines.gates.comfyui.asking import RequestInvalid, read_caller, read_query
from engines.gates.comfyui.desk import Desk
from engines.gates.comfyui.graph import CLIENT
from engines.gates.comfyui.jobs import JobState
from engines.gates.comfyui.sockets import Mailbox, Sockets
from engines.gates.comfyui.telling import name_socket, tell_features, tell_running, tell_status

PATH = "/ws"
_FEATURES = re.compile(r'\s*\{\s*"type"\s*:\s*"feature_flags"')


class Events:
    """See the module."""

    def __init__(self, desk: Desk, sockets: Sockets) -> None:
        self._desk = desk
        self._sockets = sockets

    async def on_get(self, req: Request, resp: Response) -> None:
        caller, client_id = read_caller(req), read_query(req, frozenset({"clientId"})).get("clientId", "")
        if client_id and not CLIENT.fullmatch(client_id):
            raise RequestInvalid("clientId may have up to 128 letters, digits and any of . _ : @ + = -")
        client = req.scope.get("extensions", {}).get(SPLICE_EXTENSION)
        if not isinstance(client, ClientStream):
            raise BugError("a gate is served by llmgw's own server only")
        box = self._sockets.open(caller, client_id)
        try:
            socket = client.accept_websocket()
            self._greet(box)
            await _serve(socket, box)
        finally:
            self._sockets.close(box)

    def _greet(self, box: Mailbox) -> None:
        own = [job for job in self._desk.of(box.caller) if not job.record.state.is_final]
        box.put(tell_status(len(own), box.client or name_socket()))
        for job in own:
            if job.record.state is JobState.RUNNING and job.running and box.hears_of(job.record):
                box.put(tell_running(job))


async def _serve(socket: WebSocket, box: Mailbox) -> None:
    """Until the client leaves, or is too slow. A client that takes nothing is noticed while it is being sent to."""
    await run_until_first(*(part(socket, box) for part in (_speak, _listen, _watch)))


async def _speak(socket: WebSocket, box: Mailbox) -> None:
    try:
        while True:
            await socket.send(await box.take())
    except WebSocketClosedError:
        return


async def _watch(socket: WebSocket, box: Mailbox) -> None:
    await box.overrun.wait()
    socket.close(TRY_LATER, "you read too slowly")


async def _listen(socket: WebSocket, box: Mailbox) -> None:
    is_answered = False
    try:
        while True:
            said = await socket.receive()
            if not is_answered and isinstance(said, str) and _FEATURES.match(said):
                is_answered = True
                box.put(tell_features())
    except WebSocketClosedError:
        return
