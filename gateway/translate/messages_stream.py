"""A streamed chat completion as the events of a streamed Message.

`message_start`, the blocks, then one `message_delta` with the one `stop_reason` and the whole usage, and
`message_stop`: the last two only for an answer that came to its end (`gateway.translate.chat_stream`).
"""

from collections.abc import Sequence

from gateway.translate.chat import Choice
from gateway.translate.chat_stream import ChatStream
from gateway.translate.messages_answer import message_id
from gateway.translate.messages_ending import Json, count_usage, read_ending
from gateway.translate.sse import write_event


class MessageStream(ChatStream):
    """One answer. `model` is the id that the client asked for, `prompt` its estimated tokens."""

    ping = write_event("ping", {"type": "ping"})

    def __init__(self, model: str, stop_sequences: Sequence[str], *, prompt: int) -> None:
        super().__init__()
        self._model = model
        self._stop_sequences = stop_sequences
        self._prompt = prompt

    def begin(self) -> bytes:
        # A client takes its first number from here; that it is never zero matters more than that it is exact.
        usage = count_usage(self.usage, prompt=self._prompt, answer=0) | {"output_tokens": 0}
        message: Json = {
            "id": message_id(self.id),
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        return write_event("message_start", {"type": "message_start", "message": message})

    def write_block(self, event: Json) -> bytes:
        return write_event(str(event["type"]), event)

    def end(self, choice: Choice) -> bytes:
        delta = read_ending(choice, self._stop_sequences, has_tools=self.has_tools, refused=self.refused)
        usage = count_usage(self.usage, prompt=self._prompt, answer=self.pieces)
        return write_event("message_delta", {"type": "message_delta", "delta": delta, "usage": usage}) + write_event(
            "message_stop", {"type": "message_stop"}
        )
