"""A streamed chat completion as the events of a streamed Response, numbered from 0.

`response.created` and `.in_progress`; for each item its `added`, its pieces and its `done`; and `response.completed`,
or `.incomplete` with the reason, only for an answer that came to its end (`gateway.translate.chat_stream`).
"""

from collections.abc import Mapping

from gateway.translate.chat import Choice
from gateway.translate.chat_stream import ChatStream
from gateway.translate.responses_answer import (
    Json,
    ResponseFrame,
    call_item,
    close_response,
    count_usage,
    message_item,
    reasoning_item,
    text_part,
)
from gateway.translate.sse import write_event

_FIELDS = {"text": "text", "thinking": "thinking", "tool_use": "partial_json"}
"""Where a piece stands in an event of `BlockQueue`."""


class ResponseStream(ChatStream):
    """One answer."""

    ping = b": keep-alive\n\n"

    def __init__(self, frame: ResponseFrame) -> None:
        super().__init__()
        self._frame = frame
        self._items: list[Json] = []
        self._kind = ""
        self._call = ("", "")
        self._text = ""
        self.number = 0
        """Of the next event."""

    def begin(self) -> bytes:
        response = self._frame.describe(self.id, "in_progress")
        return self._event("created", response=response) + self._event("in_progress", response=response)

    def write_block(self, event: Json) -> bytes:
        block, delta = event.get("content_block"), event.get("delta")
        if isinstance(block, Mapping):
            self._kind = str(block["type"])
            self._call = (str(block.get("id", "")), str(block.get("name", "")))
            self._text = ""
            return self._added()
        if isinstance(delta, Mapping):
            piece = delta.get(_FIELDS[self._kind])
            return self._piece(piece) if isinstance(piece, str) else b""
        return self._done()

    def end(self, choice: Choice) -> bytes:
        response = close_response(self._frame, self.id, choice, self._items, count_usage(self.usage))
        return self._event(str(response["status"]), response=response)

    def _added(self) -> bytes:
        added = self._event("output_item.added", output_index=len(self._items), item=self._item("in_progress"))
        if self._kind == "tool_use":
            return added
        return added + self._event("content_part.added", **self._place(), part=self._part())

    def _piece(self, piece: str) -> bytes:
        self._text += piece
        if self._kind == "tool_use":
            return self._event("function_call_arguments.delta", **self._place(), delta=piece)
        if self._kind == "thinking":
            return self._event("reasoning_text.delta", **self._place(), delta=piece)
        return self._event("output_text.delta", **self._place(), delta=piece, logprobs=[])

    def _done(self) -> bytes:
        place = self._place()
        if self._kind == "tool_use":
            self._text = self._text or "{}"
            done = self._event("function_call_arguments.done", **place, name=self._call[1], arguments=self._text)
        else:
            kind = "reasoning_text" if self._kind == "thinking" else "output_text"
            more: Json = {} if self._kind == "thinking" else {"logprobs": []}
            done = self._event(f"{kind}.done", **place, text=self._text, **more)
            done += self._event("content_part.done", **place, part=self._part())
        item = self._item("completed")
        done += self._event("output_item.done", output_index=len(self._items), item=item)
        self._items.append(item)
        return done

    def _item(self, status: str) -> Json:
        number = len(self._items)
        if self._kind == "tool_use":
            return call_item(self.id, number, (*self._call, self._text), status)
        if self._kind == "thinking":
            return reasoning_item(self.id, number, self._text, status)
        parts = [text_part(self._text)] if status == "completed" else []
        return message_item(self.id, number, parts, status)

    def _part(self) -> Json:
        return {"type": "reasoning_text", "text": self._text} if self._kind == "thinking" else text_part(self._text)

    def _place(self) -> Json:
        place: Json = {"item_id": self._item("")["id"], "output_index": len(self._items)}
        return place if self._kind == "tool_use" else place | {"content_index": 0}

    def _event(self, name: str, /, **fields: object) -> bytes:
        event = {"type": f"response.{name}", "sequence_number": self.number, **fields}
        self.number += 1
        return write_event(f"response.{name}", event)
