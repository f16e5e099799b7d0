"""A streamed chat completion, read: the same for every dialect that it is said in.

It begins with the engine's first chunk; then come its blocks, one at a time (`gateway.translate.blocks`); and it ends
once, for an answer that came to its end. An engine that breaks off, in whatever way, leaves a stream without that:
cut, silent about its reason, in error, or no longer JSON.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from gateway.translate.blocks import BlockQueue, Json
from gateway.translate.chat import ChatAnswer, Choice, Said, Usage, read_chat
from gateway.translate.failures import BadAnswer, EngineError
from gateway.translate.messages_answer import tool_id
from gateway.translate.sse import EventReader

_DONE = b"[DONE]"


class ChatStream(ABC):
    """One answer; a dialect says what is written at each of its points."""

    ping = b""
    """What keeps the client's connection alive when the engine says that it lives."""

    def __init__(self) -> None:
        self.id = ""
        self.usage: Usage | None = None
        self.has_tools = False
        self.refused = False
        self.pieces = 0
        """Chunks with something in them: for who must count what the engine does not."""
        self._reader = EventReader()
        self._blocks = BlockQueue(lambda number: tool_id(None, self.id, number))
        self._ending: Choice | None = None
        self._is_begun = False
        self._is_over = False

    @abstractmethod
    def begin(self) -> bytes:
        """The first events; `id` is known, and `usage` if the engine counts from the beginning."""

    @abstractmethod
    def write_block(self, event: Json) -> bytes:
        """One event of `BlockQueue`."""

    @abstractmethod
    def end(self, choice: Choice) -> bytes:
        """The last events; all blocks are written."""

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
            return self.ping if self._is_begun else b""
        if payload == _DONE:
            return self._end()
        answer = read_chat(payload)
        if bytes(answer.error) not in (b"", b"null"):
            raise EngineError(bytes(answer.error).decode("utf-8", "replace"))
        if answer.usage is not None:
            self.usage = answer.usage
        start = b"" if self._is_begun else self._begin(answer)
        choice = answer.choice
        return start + (self._write(self._add(choice)) if choice is not None else b"")

    def _begin(self, answer: ChatAnswer) -> bytes:
        self._is_begun = True
        self.id = answer.id
        return self.begin()

    def _add(self, choice: Choice) -> Iterable[Json]:
        if self._ending is not None:
            return
        if choice.delta is not None:
            yield from self._say(choice.delta)
        if choice.finish_reason is not None:
            self._ending = choice

    def _say(self, said: Said) -> Iterable[Json]:
        self.pieces += 1
        self.refused = self.refused or bool(said.refusal)
        if said.thought:
            yield from self._blocks.say("thinking", said.thought)
        if said.text:
            yield from self._blocks.say("text", said.text)
        for place, call in enumerate(said.tool_calls or ()):
            self.has_tools = True
            number = place if call.index is None else call.index
            yield from self._blocks.call(number, call.id or "", call.function.name or "", call.function.text)

    def _end(self) -> bytes:
        ending = self._ending
        if ending is None:
            raise BadAnswer("a stream that ended without a reason")
        self._is_over = True
        return self._write(self._blocks.close()) + self.end(ending)

    def _write(self, events: Iterable[Json]) -> bytes:
        return b"".join(self.write_block(event) for event in events)
