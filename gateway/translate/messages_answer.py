"""A whole chat completion as Anthropic's Message."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from gateway.translate.chat import Said, ToolCall, read_chat
from gateway.translate.failures import BadAnswer
from gateway.translate.messages_ending import Json, count_usage, read_ending

_object = msgspec.json.Decoder(dict[str, Raw])


def build_message(data: bytes, model: str, stop_sequences: Sequence[str], *, prompt: int) -> bytes:
    """`model` is the id that the client asked for, `prompt` its tokens if the engine does not count.

    Raises: BadAnswer.
    """
    answer = read_chat(data)
    choice = answer.choice
    if choice is None or choice.message is None:
        raise BadAnswer("a chat completion without a message")
    said = choice.message
    content = _content(said, answer.id)
    ending = read_ending(choice, stop_sequences, has_tools=bool(said.tool_calls), refused=bool(said.refusal))
    message: Json = {
        "id": message_id(answer.id),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        **ending,
        "usage": count_usage(answer.usage, prompt=prompt, answer=0),
    }
    return msgspec.json.encode(message)


def build_count(data: bytes) -> bytes:
    """The answer to `count_tokens`, from a completion that was asked for its prompt's sake. Raises: BadAnswer."""
    usage = read_chat(data).usage
    if usage is None:
        raise BadAnswer("a chat completion without usage")
    return msgspec.json.encode({"input_tokens": usage.prompt_tokens})


def message_id(chat_id: str) -> str:
    return "msg_" + (chat_id.removeprefix("chatcmpl-") or "0")


def tool_id(offered: str | None, chat_id: str, number: int) -> str:
    """The engine's id for a call, or one of ours where it has none: results are matched by it."""
    return offered or f"toolu_{chat_id.removeprefix('chatcmpl-')}_{number}"


def _content(said: Said, chat_id: str) -> list[Json]:
    content: list[Json] = []
    if said.thought:
        content.append({"type": "thinking", "thinking": said.thought, "signature": ""})
    if said.text:
        content.append({"type": "text", "text": said.text})
    for number, call in enumerate(said.tool_calls or ()):
        content.append(
            {
                "type": "tool_use",
                "id": tool_id(call.id, chat_id, number),
                "name": call.function.name or "",
                "input": _input(call),
            }
        )
    return content


def _input(call: ToolCall) -> Raw | Json:
    """A tool's input is an object; what the model wrote instead is shown under the name that Anthropic gives it."""
    text = call.function.text
    if not text.strip():
        return {}
    data = text.encode("utf-8", "replace")
    try:
        _object.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {"INVALID_JSON": text}
    return Raw(data)
