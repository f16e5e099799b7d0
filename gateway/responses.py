"""A request in the dialect of OpenAI's Responses, in both of its languages (`gateway.dialects`). Pure."""

from core.api import RouteTarget
from gateway.dialects import TwoDialects, is_own_everywhere
from gateway.edited import StreamEdit
from gateway.rewrite import StreamRenamer, rename_model
from gateway.table import ModelEntry
from gateway.translate.failures import EngineError
from gateway.translate.messages_errors import read_message
from gateway.translate.responses_answer import ResponseFrame, build_response
from gateway.translate.responses_request import build_chat_request, read_request
from gateway.translate.responses_stream import ResponseStream
from gateway.translate.sse import write_event

_BROKEN = "The answer broke off: the engine ended before its end."


class ResponsesEdit(TwoDialects):
    """One request (`gateway.edited.Edit`)."""

    def __init__(self, path: str, entry: ModelEntry, asked: str, body: bytes, *, created_s: int) -> None:
        """Raises: ApiError for what no target of the model could be asked."""
        self._frame = ResponseFrame(asked, created_s, {})
        self._stream: ResponseStream | None = None
        chat = b""
        if not is_own_everywhere(entry, path):
            request = read_request(body)
            chat = build_chat_request(request, asked)
            self._frame = ResponseFrame(asked, created_s, request.said)
        super().__init__(path, entry, asked, body, chat)

    def whole(self, target: RouteTarget, status: int, body: bytes) -> bytes:
        # OpenAI's envelope of an error is the same for both dialects.
        if status >= 400 or self.is_own(target):
            return rename_model(body, self._asked)
        return build_response(body, self._frame)

    def stream(self, target: RouteTarget) -> StreamEdit:
        if self.is_own(target):
            return StreamRenamer(self._asked)
        self._stream = ResponseStream(self._frame)
        return self._stream

    def error_event(self, error: Exception) -> bytes:
        code, message = "upstream_broken", _BROKEN
        if isinstance(error, EngineError):
            said = read_message(b'{"error":%b}' % str(error).encode("utf-8", "replace"))
            code, message = "upstream_failed", said or "The engine failed."
        number = self._stream.number if self._stream is not None else 0
        event: dict[str, object] = {"type": "error", "code": code, "message": message, "param": None}
        event["sequence_number"] = number
        # The blank line ends an event that broke off in its middle; where none did, it means nothing.
        return b"\n\n" + write_event("error", event)
