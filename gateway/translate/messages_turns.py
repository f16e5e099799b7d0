"""A conversation in Anthropic's blocks as chat messages.

What differs, and how it is said here:

- Turns of the same role that follow each other are one turn (so Anthropic has it, and chat templates insist).
- A tool's result is a block of a user's turn there and a message of its own here; it comes before what the user says
  beside it. A tool's message holds text alone, so the pictures of a result stand in the user's message after it.
- What the model thought goes back to it as `reasoning_content`; what only Anthropic could read of it is left out.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from gateway.errors import ApiError
from gateway.translate.anthropic import (
    Base64Source,
    Block,
    ContentSource,
    Document,
    Image,
    MessagesRequest,
    SearchResult,
    Shown,
    Text,
    TextSource,
    Thinking,
    ToolResult,
    ToolUse,
    Turn,
    UrlSource,
)
from gateway.translate.failures import unsupported

Json = dict[str, object]


def build_messages(request: MessagesRequest) -> list[Json]:
    """Raises: ApiError for what cannot be said in chat messages."""
    if not request.messages:
        raise ApiError(400, "invalid_request", "The request is not valid: `messages` is empty.")
    messages: list[Json] = []
    system = request.system
    if system:
        text = system if isinstance(system, str) else "\n".join(block.text for block in system)
        messages.append({"role": "system", "content": text})
    for role, turns in groupby(request.messages, key=_role):
        blocks = [block for turn in turns for block in turn.blocks]
        if role == "assistant":
            messages.append(_assistant(blocks))
        else:
            messages.extend(_user(blocks, role))
    return messages


def _role(turn: Turn) -> str:
    return turn.role


def _assistant(blocks: Sequence[Block]) -> Json:
    text = "".join(block.text for block in blocks if isinstance(block, Text))
    calls = [_call(block) for block in blocks if isinstance(block, ToolUse)]
    thought = "".join(block.thinking for block in blocks if isinstance(block, Thinking))
    if any(isinstance(block, (Image, Document, SearchResult, ToolResult)) for block in blocks):
        raise unsupported("an assistant's turn holds text, thoughts and tool calls")
    message: Json = {"role": "assistant", "content": text if text or not calls else None}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: ToolUse) -> Json:
    arguments = bytes(block.input).decode()
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}


def _user(blocks: Iterable[Block], role: str) -> Iterable[Json]:
    parts: list[Json] = []
    for block in blocks:
        if isinstance(block, ToolResult):
            words, pictures = _result(block)
            parts.extend(pictures)
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": words}
        elif isinstance(block, (Text, Image, Document, SearchResult)):
            parts.extend(_parts(block))
        else:
            raise unsupported(f"a {role}'s turn holds neither thoughts nor tool calls")
    if parts:
        yield {"role": role, "content": parts[0]["text"] if _is_one_text(parts) else parts}


def _is_one_text(parts: Sequence[Json]) -> bool:
    return len(parts) == 1 and parts[0]["type"] == "text"


def _result(block: ToolResult) -> tuple[str, list[Json]]:
    """A tool's result as its text and its pictures."""
    if block.content is None or isinstance(block.content, str):
        parts: list[Json] = [{"type": "text", "text": block.content or ""}]
    else:
        parts = [part for shown in block.content for part in _parts(shown)]
    text = "\n".join(str(part["text"]) for part in parts if part["type"] == "text")
    if block.is_error and text[:5].lower() != "error":
        # Chat messages have no other way to tell the model that its call failed.
        text = f"Error: {text}" if text else "Error"
    return text, [part for part in parts if part["type"] != "text"]


def _parts(block: Shown) -> list[Json]:
    if isinstance(block, Text):
        return [_text(block.text)]
    if isinstance(block, Image):
        return [_picture(block)]
    if isinstance(block, SearchResult):
        return [_text("\n".join([block.title, block.source, *(text.text for text in block.content)]))]
    head = [_text(line) for line in (block.title, block.context) if line]
    source = block.source
    if isinstance(source, TextSource):
        return [*head, _text(source.data)]
    if isinstance(source, ContentSource):
        inside = [Text(source.content)] if isinstance(source.content, str) else source.content
        return [*head, *(part for each in inside for part in _parts(each))]
    raise unsupported("documents must be plain text")


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _picture(block: Image) -> Json:
    source = block.source
    if isinstance(source, Base64Source):
        url = f"data:{source.media_type};base64,{source.data}"
    elif isinstance(source, UrlSource):
        url = source.url
    else:
        raise unsupported("images must be in the request or at a URL")
    return {"type": "image_url", "image_url": {"url": url}}
