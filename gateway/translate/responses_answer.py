"""A chat completion as OpenAI's Response: its items, its state, and the whole of it."""

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from gateway.translate.chat import Choice, Said, Usage, read_chat
from gateway.translate.failures import BadAnswer
from gateway.translate.messages_answer import tool_id

Json = dict[str, object]

_ECHOED: Mapping[str, object] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
"""What a Response repeats of its request, and what stands there when the request does not say it."""
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponseFrame(msgspec.Struct, frozen=True):
    """What is the same from a Response's first event to its last."""

    model: str
    created_s: int
    said: Mapping[str, Raw]
    """The request's fields."""

    def describe(self, chat_id: str, status: str, **fields: object) -> Json:
        echoed = {name: self.said.get(name, value) for name, value in _ECHOED.items()}
        return {
            "id": f"resp_{_bare(chat_id)}",
            "object": "response",
            "created_at": self.created_s,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": self.model,
            "output": [],
            "previous_response_id": None,
            "store": False,
            "usage": None,
            **echoed,
            **fields,
        }


def build_response(data: bytes, frame: ResponseFrame) -> bytes:
    """The whole answer. Raises: BadAnswer."""
    answer = read_chat(data)
    choice = answer.choice
    if choice is None or choice.message is None:
        raise BadAnswer("a chat completion without a message")
    items = _items(choice.message, answer.id)
    return msgspec.json.encode(close_response(frame, answer.id, choice, items, count_usage(answer.usage)))


def close_response(frame: ResponseFrame, chat_id: str, choice: Choice, items: list[Json], usage: Json | None) -> Json:
    """A Response at its end: complete, or cut short for a reason."""
    reason = _INCOMPLETE.get(choice.finish_reason or "")
    if reason is None:
        return frame.describe(chat_id, "completed", output=items, usage=usage)
    details = {"reason": reason}
    return frame.describe(chat_id, "incomplete", output=items, usage=usage, incomplete_details=details)


def count_usage(usage: Usage | None) -> Json | None:
    if usage is None:
        return None
    answer = usage.completion_tokens or 0
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": answer,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + answer,
    }


def reasoning_item(chat_id: str, number: int, text: str, status: str) -> Json:
    content = [{"type": "reasoning_text", "text": text}] if text else []
    id_ = f"rs_{_bare(chat_id)}_{number}"
    return {"id": id_, "type": "reasoning", "summary": [], "content": content, "status": status}


def message_item(chat_id: str, number: int, parts: list[Json], status: str) -> Json:
    id_ = f"msg_{_bare(chat_id)}_{number}"
    return {"id": id_, "type": "message", "role": "assistant", "status": status, "content": parts}


def text_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def call_item(chat_id: str, number: int, call: tuple[str, str, str], status: str) -> Json:
    """`call`: its id, its name, its arguments."""
    call_id, name, arguments = call
    id_ = f"fc_{_bare(chat_id)}_{number}"
    return {
        "id": id_,
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def _items(said: Said, chat_id: str) -> list[Json]:
    items: list[Json] = []
    if said.thought:
        items.append(reasoning_item(chat_id, 0, said.thought, "completed"))
    if said.text:
        items.append(message_item(chat_id, len(items), [text_part(said.text)], "completed"))
    for number, call in enumerate(said.tool_calls or ()):
        parts = (tool_id(call.id, chat_id, number), call.function.name or "", call.function.text or "{}")
        items.append(call_item(chat_id, len(items), parts, "completed"))
    return items


def _bare(chat_id: str) -> str:
    return chat_id.removeprefix("chatcmpl-") or "0"
