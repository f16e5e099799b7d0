"""OpenAI-shaped requests and answers of the simulated engine. Pure.

Token `n` of an answer is the text `w<n> `, so that a reader can prove that a stream arrived whole and in order.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from engines.sim.settings import Behaviour, ScriptedCall

Json = dict[str, object]


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False


class Message(msgspec.Struct, frozen=True):
    role: str = ""
    content: str | list[Json] | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What we read of a chat or completion request; everything else is ignored, as engines do."""

    model: str = ""
    messages: list[Message] = []
    prompt: str | list[str | int] = ""
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    stop: str | list[str] | None = None
    sim: Json | None = None
    """Overrides of `Behaviour` for this request."""

    def behaviour(self, default: Behaviour) -> Behaviour:
        """Raises: msgspec.ValidationError."""
        if not self.sim:
            return default
        return msgspec.convert({**msgspec.to_builtins(default), **self.sim}, Behaviour)


_PICTURE_TOKENS = 16


def count_prompt(request: Request) -> int:
    """Words, which are our tokens, and a number for each picture; at least one."""
    texts: list[str] = []
    pictures = 0
    for message in request.messages:
        if isinstance(message.content, str):
            texts.append(message.content)
        elif message.content is not None:
            texts.extend(str(part.get("text", "")) for part in message.content)
            pictures += sum(part.get("type") == "image_url" for part in message.content)
    if isinstance(request.prompt, str):
        texts.append(request.prompt)
    else:
        texts.extend(map(str, request.prompt))
    return max(1, sum(len(text.split()) for text in texts) + pictures * _PICTURE_TOKENS)


def token_text(number: int) -> str:
    return f"w{number} "


class Length(msgspec.Struct, frozen=True):
    """Where an answer ends, and why."""

    tokens: int
    reason: str
    stop: str | None = None
    """The stop string that was met, as vLLM tells it."""


def answer_length(request: Request, behaviour: Behaviour) -> Length:
    """A limit cuts before a stop string, a stop string before the end; tool calls follow only a whole text."""
    limit = request.max_completion_tokens or request.max_tokens
    tokens = behaviour.tokens if limit is None else min(limit, behaviour.tokens)
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    for number in range(tokens if stops else 0):
        met = next((stop for stop in stops if stop in token_text(number)), None)
        if met is not None:
            return Length(number, "stop", met)
    if tokens < behaviour.tokens:
        return Length(tokens, "length")
    return Length(tokens, "tool_calls" if behaviour.calls else "stop")


def usage(prompt_tokens: int, tokens: int) -> Json:
    return {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens}


def error_body(status: int, kind: str, message: str) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": kind, "code": status}})


class Writer:
    """Renders one answer, chat or completion, whole or in pieces."""

    def __init__(  # noqa: PLR0913 - the parts of an answer
        self, *, is_chat: bool, answer_id: str, model: str, created: int, length: Length, behaviour: Behaviour
    ) -> None:
        self._chat = is_chat
        self._length = length
        self._thinks = behaviour.thinks if is_chat else 0
        self._calls = behaviour.calls if is_chat and length.reason == "tool_calls" else ()
        kind = ("chat.completion", "chat.completion.chunk") if is_chat else ("text_completion", "text_completion")
        self._whole: Json = {"id": answer_id, "object": kind[0], "created": created, "model": model}
        self._piece: Json = {"id": answer_id, "object": kind[1], "created": created, "model": model}

    def whole(self, counted: Json | None) -> bytes:
        """A buffered answer."""
        texts = [token_text(number) for number in range(self._length.tokens)]
        text = "".join(texts[self._thinks :])
        content: Json = {"text": text}
        if self._chat:
            message: Json = {"role": "assistant", "content": text}
            if self._thinks:
                message["reasoning_content"] = "".join(texts[: self._thinks])
            if self._calls:
                message["tool_calls"] = [_call(n, c.name, c.arguments) for n, c in enumerate(self._calls)]
            content = {"message": message}
        body = {**self._whole, "choices": [self._choice(content, self._length.reason)]}
        return msgspec.json.encode({**body, "usage": counted} if counted else body)

    def opening(self) -> bytes:
        """A chat's first chunk says who speaks; a completion has none."""
        return self._event({"delta": {"role": "assistant", "content": ""}}, None) if self._chat else b""

    def token(self, number: int) -> bytes:
        text = token_text(number)
        field = "reasoning_content" if number < self._thinks else "content"
        return self._event({"delta": {field: text}} if self._chat else {"text": text}, None)

    def closing(self) -> bytes:
        """The tool calls, each in three pieces, and the reason of the end."""
        pieces = [piece for number, call in enumerate(self._calls) for piece in _call_pieces(number, call)]
        calls = b"".join(self._event({"delta": {"tool_calls": [piece]}}, None) for piece in pieces)
        return calls + self._event({"delta": {}} if self._chat else {"text": ""}, self._length.reason)

    def usage_chunk(self, counted: Json) -> bytes:
        return sse(msgspec.json.encode({**self._piece, "choices": [], "usage": counted}))

    def _event(self, content: Json, reason: str | None) -> bytes:
        return sse(msgspec.json.encode({**self._piece, "choices": [self._choice(content, reason)]}))

    def _choice(self, content: Json, reason: str | None) -> Json:
        choice: Json = {"index": 0, **content, "finish_reason": reason}
        if reason is not None and self._length.stop is not None:
            choice["stop_reason"] = self._length.stop
        return choice


def _call(number: int, name: str, arguments: str) -> Json:
    function = {"name": name, "arguments": arguments}
    return {"index": number, "id": f"call-sim-{number}", "type": "function", "function": function}


def _call_pieces(number: int, call: ScriptedCall) -> list[Json]:
    half = len(call.arguments) // 2
    parts = [call.arguments[:half], call.arguments[half:]]
    return [_call(number, call.name, ""), *({"index": number, "function": {"arguments": part}} for part in parts)]


def sse(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


DONE = sse(b"[DONE]")
GARBAGE = sse(b'{"choices": [{"delta": {"content": "')
