"""The order of a streamed message's content blocks.

In Anthropic's streams one block is open at a time: started once, added to, stopped once, then the next. Engines that
stream several tool calls may mix their pieces. So blocks stand in a queue: what is said to the first goes out at once,
what is said to another waits until the first is over. A text is over when something else is said, a tool's input when
its JSON is whole; so for engines that finish one call before the next, which is all that we know, nothing waits.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from gateway.translate.failures import BadAnswer

Json = dict[str, object]

_whole = msgspec.json.Decoder(dict[str, msgspec.Raw])

_STARTS: dict[str, Json] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}
_DELTAS = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}


class _Block:
    """One block, from the first piece of it to its stop."""

    __slots__ = ("id", "is_started", "is_stopped", "kind", "name", "seen", "unsent")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.id = ""
        self.name = ""
        self.seen = ""
        """All of a tool's input so far."""
        self.unsent = ""
        self.is_started = False
        self.is_stopped = False

    @property
    def is_whole(self) -> bool:
        """Whether nothing more is to be expected once something else is said."""
        if self.kind != "tool_use":
            return True
        if not self.seen.rstrip().endswith("}"):
            return False
        try:
            _whole.decode(self.seen.encode("utf-8", "replace"))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return False
        return True

    def start(self) -> Json:
        return _STARTS.get(self.kind) or {"type": "tool_use", "id": self.id, "name": self.name, "input": {}}

    def delta(self) -> Json:
        kind, field = _DELTAS.get(self.kind, ("input_json_delta", "partial_json"))
        return {"type": kind, field: self.unsent}


class BlockQueue:
    """The blocks of one message. Every method returns the events that follow.

    `make_id` gives an id to the tool call with a number whose engine gives none.
    """

    def __init__(self, make_id: Callable[[int], str]) -> None:
        self._make_id = make_id
        self._queue: deque[_Block] = deque()
        self._tools: dict[int, _Block] = {}
        self._index = 0
        self.tool_count = 0

    def say(self, kind: str, text: str) -> list[Json]:
        """A piece of `text` or `thinking`."""
        if not self._queue or self._queue[-1].kind != kind:
            self._queue.append(_Block(kind))
        self._queue[-1].unsent += text
        return self._advance()

    def call(self, number: int, id_: str, name: str, arguments: str) -> list[Json]:
        """A piece of the tool call with this number. Raises: BadAnswer when that call was over."""
        block = self._tools.get(number)
        if block is None or (id_ and id_ != block.id and block.is_whole):
            block = self._tools[number] = _Block("tool_use")
            block.id = id_ or self._make_id(self.tool_count)
            self._queue.append(block)
            self.tool_count += 1
        if block.is_stopped:
            if arguments.strip():
                raise BadAnswer("more of a tool call that was whole")
            return []
        block.name = block.name or name
        block.seen += arguments
        block.unsent += arguments
        return self._advance()

    def close(self) -> list[Json]:
        """Nothing more comes."""
        return self._advance(is_last=True)

    def _advance(self, *, is_last: bool = False) -> list[Json]:
        events: list[Json] = []
        while self._queue:
            block = self._queue[0]
            if not block.is_started:
                if not is_last and block.kind == "tool_use" and not block.name:
                    break
                block.is_started = True
                events.append({"type": "content_block_start", "index": self._index, "content_block": block.start()})
            if block.unsent:
                events.append({"type": "content_block_delta", "index": self._index, "delta": block.delta()})
                block.unsent = ""
            if not is_last and (len(self._queue) == 1 or not block.is_whole):
                break
            events.extend(self._stop(block))
        return events

    def _stop(self, block: _Block) -> list[Json]:
        self._queue.popleft()
        block.is_stopped = True
        index, self._index = self._index, self._index + 1
        stop: Json = {"type": "content_block_stop", "index": index}
        if block.kind != "thinking":
            return [stop]
        # Clients expect a signature; ours vouches for nothing, and nobody asks it to.
        signature: Json = {"type": "signature_delta", "signature": ""}
        return [{"type": "content_block_delta", "index": index, "delta": signature}, stop]
