"""OpenAI-shaped requests and answers of the simulated engine. Pure.

Token `n` of an answer is the text `w<n> `, so that a reader can prove that a stream arrived whole and in order.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from engines.sim.settings import Behaviour

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
    sim: Json | None = None
    """Overrides of `Behaviour` for this request."""

    def behaviour(self, default: Behaviour) -> Behaviour:
        """Raises: msgspec.ValidationError."""
        if not self.sim:
            return default
        return msgspec.convert({**msgspec.to_builtins(default), **self.sim}, Behaviour)


def count_prompt(request: Request) -> int:
    """Words, which are our tokens; at least one."""
    texts: list[str] = []
    for message in request.messages:
        if isinstance(message.content, str):
            texts.append(message.content)
        elif message.content is not None:
            texts.extend(str(part.get("text", "")) for part in message.content)
    if isinstance(request.prompt, str):
        texts.append(request.prompt)
    else:
        texts.extend(map(str, request.prompt))
    return max(1, sum(len(text.split()) for text in texts))


def token_text(number: int) -> str:
    return f"w{number} "


def answer_length(request: Request, behaviour: Behaviour) -> tuple[int, str]:
    """How many tokens, and OpenAI's reason for the end."""
    limit = request.max_completion_tokens or request.max_tokens
    if limit is not None and limit < behaviour.tokens:
        return limit, "length"
    return behaviour.tokens, "stop"


def usage(prompt_tokens: int, tokens: int) -> Json:
    return {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens}


def error_body(status: int, kind: str, message: str) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": kind, "code": status}})


class Writer:
    """Renders one answer, chat or completion, whole or in pieces."""

    def __init__(self, *, is_chat: bool, answer_id: str, model: str, created: int) -> None:
        self._chat = is_chat
        kind = ("chat.completion", "chat.completion.chunk") if is_chat else ("text_completion", "text_completion")
        self._whole: Json = {"id": answer_id, "object": kind[0], "created": created, "model": model}
        self._piece: Json = {"id": answer_id, "object": kind[1], "created": created, "model": model}

    def whole(self, tokens: int, reason: str, counted: Json | None) -> bytes:
        """A buffered answer."""
        text = "".join(map(token_text, range(tokens)))
        content: Json = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        choice = {"index": 0, **content, "finish_reason": reason}
        body = {**self._whole, "choices": [choice]}
        return msgspec.json.encode({**body, "usage": counted} if counted else body)

    def opening(self) -> bytes:
        """A chat's first chunk says who speaks; a completion has none."""
        return self._event({"delta": {"role": "assistant", "content": ""}}, None) if self._chat else b""

    def token(self, number: int) -> bytes:
        text = token_text(number)
        return self._event({"delta": {"content": text}} if self._chat else {"text": text}, None)

    def closing(self, reason: str) -> bytes:
        return self._event({"delta": {}} if self._chat else {"text": ""}, reason)

    def usage_chunk(self, counted: Json) -> bytes:
        return sse(msgspec.json.encode({**self._piece, "choices": [], "usage": counted}))

    def _event(self, content: Json, reason: str | None) -> bytes:
        choice = {"index": 0, **content, "finish_reason": reason}
        return sse(msgspec.json.encode({**self._piece, "choices": [choice]}))


def sse(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


DONE = sse(b"[DONE]")
GARBAGE = sse(b'{"choices": [{"delta": {"content": "')
