"""A request in Anthropic's dialect, in both of its languages (`gateway.dialects`). Pure."""

from core.api import RouteTarget
from gateway.dialects import TwoDialects, is_own_everywhere
from gateway.edited import StreamEdit
from gateway.relay import InferencePlan
from gateway.rewrite import StreamRenamer, rename_model
from gateway.table import COUNT_TOKENS, ModelEntry
from gateway.translate.failures import EngineError
from gateway.translate.messages_answer import build_count, build_message
from gateway.translate.messages_errors import read_message, translate_refusal, write_error_event
from gateway.translate.messages_request import build_chat_request, build_count_request, read_request
from gateway.translate.messages_stream import MessageStream

_BROKEN_EVENT = write_error_event(502, "The answer broke off: the engine ended before its end.", code="upstream_broken")


class MessagesPlan(InferencePlan):
    """A relay whose client reads Anthropic's errors."""

    __slots__ = ()

    error_event = _BROKEN_EVENT
    reads_refusals = True


class MessagesEdit(TwoDialects):
    """One request (`gateway.edited.Edit`)."""

    def __init__(self, path: str, entry: ModelEntry, asked: str, body: bytes) -> None:
        """Raises: ApiError for what no target of the model could be asked."""
        self._is_count = path == COUNT_TOKENS
        self._prompt = 0
        self._stop_sequences: list[str] = []
        chat = b""
        if not is_own_everywhere(entry, path):
            request = read_request(body)
            build = build_count_request if self._is_count else build_chat_request
            chat = build(request, asked)
            self._prompt = request.estimated_tokens
            self._stop_sequences = request.request.stop_sequences or []
        super().__init__(path, entry, asked, body, chat)

    def whole(self, target: RouteTarget, status: int, body: bytes) -> bytes:
        if status >= 400:
            return translate_refusal(status, body)
        if self.is_own(target):
            return rename_model(body, self._asked)
        if self._is_count:
            return build_count(body)
        return build_message(body, self._asked, self._stop_sequences, prompt=self._prompt)

    def stream(self, target: RouteTarget) -> StreamEdit:
        if self.is_own(target):
            return StreamRenamer(self._asked)
        return MessageStream(self._asked, self._stop_sequences, prompt=self._prompt)

    def error_event(self, error: Exception) -> bytes:
        event = _BROKEN_EVENT
        if isinstance(error, EngineError):
            said = read_message(b'{"error":%b}' % str(error).encode("utf-8", "replace"))
            event = write_error_event(502, said or "The engine failed.", code="upstream_failed")
        # The blank line ends an event that broke off in its middle; where none did, it means nothing.
        return b"\n\n" + event
