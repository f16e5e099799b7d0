"""A streamed chat completion as the events of a streamed Message.

`message_start`, the blocks (`gateway.translate.blocks`), then one `message_delta` with the one `stop_reason` and the
whole usage, and `message_stop`. The last two are written only for an answer that came to its end: an engine that
breaks off, in whatever way, leaves a stream without them.
"""

from collections.abc import Iterable, Sequence

from gateway.translate.blocks import BlockQueue
from gateway.translate.chat import ChatAnswer, Choice, Said, Usage, read_chat
from gateway.translate.failures import BadAnswer, EngineError
from gateway.translate.messages_answer import message_id, tool_id
from gateway.translate.messages_ending import Json, count_usage, read_ending
from gateway.translate.sse import EventReader, write_event

_PING = write_event("ping", {"type": "ping"})
_DONE = b"[DONE]"


class MessageStream:
    """One answer. `model` is the id that the client asked for, `prompt` its estimated tokens."""

    def __init__(self, model: str, stop_sequences: Sequence[str], *, prompt: int) -> None:
        self._model = model
        self._stop_sequences = stop_sequences
        self._prompt = prompt
        self._reader = EventReader()
        self._blocks = BlockQueue(lambda number: tool_id(None, self._id or "", number))
        self._id: str | None = None
        self._usage: Usage | None = None
        self._ending: Choice | None = None
        self._refused = False
        self._pieces = 0
        self._is_over = False

    def feed(self, data: bytes) -> bytes:
        """The events that follow from the next bytes of the engine. Raises: BadAnswer, EngineError."""
        return b"".join(self._translate(payload) for payload in self._reader.feed(data))

    def finish(self) -> bytes:
        """The engine's stream came to its end. Raises: BadAnswer when its answer did not."""
        return b"" if self._is_over else self._end()

    def _translate(self, payload: bytes | None) -> bytes:
        if self._is_over:
            return b""
        if payload is None:
            return _PING if self._id is not None else b""
        if payload == _DONE:
            return self._end()
        answer = read_chat(payload)
        if bytes(answer.error) not in (b"", b"null"):
            raise EngineError(bytes(answer.error).decode("utf-8", "replace"))
        if answer.usage is not None:
            self._usage = answer.usage
        start = self._start(answer) if self._id is None else b""
        choice = answer.choice
        return start + (_write(self._add(choice)) if choice is not None else b"")

    def _start(self, answer: ChatAnswer) -> bytes:
        self._id = answer.id
        # A client takes its first number from here; that it is never zero matters more than that it is exact.
        usage = count_usage(self._usage, prompt=self._prompt, answer=0) | {"output_tokens": 0}
        message: Json = {
            "id": message_id(answer.id),
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        return write_event("message_start", {"type": "message_start", "message": message})

    def _add(self, choice: Choice) -> Iterable[Json]:
        if choice.delta is not None and self._ending is None:
            yield from self._say(choice.delta)
        if choice.finish_reason is not None and self._ending is None:
            self._ending = choice

    def _say(self, said: Said) -> Iterable[Json]:
        blocks = self._blocks
        self._pieces += 1
        self._refused = self._refused or bool(said.refusal)
        if said.thought:
            yield from blocks.say("thinking", said.thought)
        if said.text:
            yield from blocks.say("text", said.text)
        for place, call in enumerate(said.tool_calls or ()):
            number = place if call.index is None else call.index
            id_ = call.id or ""
            yield from blocks.call(number, id_, call.function.name or "", call.function.text)

    def _end(self) -> bytes:
        ending = self._ending
        if ending is None:
            raise BadAnswer("a stream that ended without a reason")
        self._is_over = True
        delta = read_ending(
            ending, self._stop_sequences, has_tools=bool(self._blocks.tool_count), refused=self._refused
        )
        usage = count_usage(self._usage, prompt=self._prompt, answer=self._pieces)
        closing: list[Json] = [
            *self._blocks.close(),
            {"type": "message_delta", "delta": delta, "usage": usage},
            {"type": "message_stop"},
        ]
        return _write(closing)


def _write(events: Iterable[Json]) -> bytes:
    return b"".join(write_event(str(event["type"]), event) for event in events)
