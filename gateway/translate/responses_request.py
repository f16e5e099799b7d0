"""A Responses request as a chat completion request.

The gateway keeps no conversation: a request says all of it, and one that refers to what was said before is refused,
as is one that wants a tool that OpenAI's servers run. As with Messages, fields that this API does not know reach the
engine as they are.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Raw

from gateway.errors import ApiError
from gateway.translate.failures import unsupported
from gateway.translate.openai import Item, Part, ResponsesRequest, Tool, ToolChoice

Json = dict[str, object]

_THEIRS = frozenset(
    {
        "context_management", "include", "max_tool_calls", "moderation", "prompt_cache_key", "prompt_cache_options",
        "prompt_cache_retention", "safety_identifier", "service_tier", "store", "stream_options", "top_logprobs",
        "truncation", "n", "messages",
    }
)  # fmt: skip
_TEXTS = frozenset({"input_text", "output_text", "text", "reasoning_text", "summary_text"})

_decoder = msgspec.json.Decoder(ResponsesRequest)
_fields = msgspec.json.Decoder(dict[str, Raw])


class AskedResponse(msgspec.Struct, frozen=True):
    """A request, read."""

    request: ResponsesRequest
    said: Mapping[str, Raw]
    """All its fields, as they stood."""


def read_request(body: bytes) -> AskedResponse:
    """Raises: ApiError (400), which names the place of what is wrong."""
    try:
        asked = AskedResponse(_decoder.decode(body), _fields.decode(body))
    except msgspec.ValidationError as error:
        raise ApiError(400, "invalid_request", f"The request is not valid: {error}.") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ApiError(400, "invalid_json", f"The request's body is not valid JSON: {error}.") from None
    except RecursionError:
        raise ApiError(400, "invalid_json", "The request's body is nested too deeply.") from None
    request = asked.request
    kept = [request.previous_response_id, _given(request.conversation), _given(request.prompt)]
    if any(kept):
        raise unsupported("nothing of an earlier request is kept, so `input` must hold the whole conversation")
    if request.background:
        raise unsupported("it answers while the client waits, not in the background")
    return asked


def build_chat_request(asked: AskedResponse, model: str) -> bytes:
    """The body that an engine gets which calls the model `model`. Raises: ApiError."""
    request = asked.request
    known = {*ResponsesRequest.__struct_fields__, "model"}
    extra = {name: value for name, value in asked.said.items() if name not in known | _THEIRS}
    ours: Json = {"model": model, "messages": build_messages(request)}
    if request.stream:
        ours |= {"stream": True, "stream_options": {"include_usage": True}}
    try:
        return msgspec.json.encode({**_wishes(request), **extra, **ours})
    except UnicodeError:
        raise ApiError(400, "invalid_request", "The request holds a text that is not Unicode.") from None


def build_messages(request: ResponsesRequest) -> list[Json]:
    """The conversation. What belongs to one turn of the assistant (thoughts, text, calls) is one message."""
    messages: list[Json] = [{"role": "system", "content": request.instructions}] if request.instructions else []
    items = [Item(content=request.input)] if isinstance(request.input, str) else request.input
    if not items:
        raise ApiError(400, "invalid_request", "The request is not valid: `input` is empty.")
    turn: Json = {}
    for item in items:
        if _is_assistants(item):
            _join(turn, item)
            continue
        messages.extend(_closed(turn))
        turn = {}
        messages.append(_message(item))
    return [*messages, *_closed(turn)]


def _is_assistants(item: Item) -> bool:
    return item.type in ("function_call", "reasoning") or (item.type == "message" and item.role == "assistant")


def _closed(turn: Json) -> Iterable[Json]:
    if "content" in turn or "tool_calls" in turn:
        yield {"role": "assistant", "content": None} | turn


def _join(turn: Json, item: Item) -> None:
    if item.type == "function_call":
        calls = turn.setdefault("tool_calls", [])
        function = {"name": item.name, "arguments": item.arguments}
        if isinstance(calls, list):
            calls.append({"id": item.call_id, "type": "function", "function": function})
    else:
        field = "reasoning_content" if item.type == "reasoning" else "content"
        text = _text(item.content)
        if text or field == "content":
            turn[field] = str(turn.get(field) or "") + text


def _message(item: Item) -> Json:
    if item.type == "function_call_output":
        return {"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)}
    if item.type != "message":
        raise unsupported(f"it has no item of the type '{item.type[:100]}'")
    role = "system" if item.role == "developer" else item.role
    if isinstance(item.content, list) and any(part.type not in _TEXTS for part in item.content):
        return {"role": role, "content": [_part(part) for part in item.content]}
    return {"role": role, "content": _text(item.content)}


def _text(content: str | Sequence[Part] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(str(_part(part)["text"]) if part.type != "input_image" else _no_image() for part in content)


def _no_image() -> str:
    raise unsupported("images belong to what the user says")


def _part(part: Part) -> Json:
    if part.type in _TEXTS or part.type == "refusal":
        return {"type": "text", "text": part.text or part.refusal}
    if part.type == "input_image" and part.image_url:
        image: Json = {"url": part.image_url}
        return {"type": "image_url", "image_url": image | ({"detail": part.detail} if part.detail else {})}
    raise unsupported(f"it takes texts and images, and no '{part.type[:100]}' without an image_url")


def _wishes(request: ResponsesRequest) -> Json:
    """How it is to be answered; what the request does not say is left to the engine."""
    wishes: Json = {
        "max_tokens": request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "tools": [_tool(tool) for tool in request.tools] if request.tools else None,
        "tool_choice": _choice(request.tool_choice) if request.tools else None,
        "parallel_tool_calls": request.parallel_tool_calls if request.tools else None,
        "reasoning_effort": request.reasoning.effort if request.reasoning is not None else None,
        "response_format": _format(request),
        "user": request.user,
    }
    return {name: value for name, value in wishes.items() if value is not None}


def _tool(tool: Tool) -> Json:
    if tool.type != "function":
        raise unsupported(f"it has no tool of the type '{tool.type[:100]}'")
    function: Json = {"name": tool.name, "parameters": tool.parameters if bytes(tool.parameters) else {}}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _choice(choice: str | ToolChoice | None) -> str | Json | None:
    if not isinstance(choice, ToolChoice):
        return choice
    if choice.type != "function":
        raise unsupported(f"it has no tool of the type '{choice.type[:100]}'")
    return {"type": "function", "function": {"name": choice.name}}


def _format(request: ResponsesRequest) -> Json | None:
    wanted = request.text.format if request.text is not None else None
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"type": "json_object"}
    schema: Json = {"name": wanted.name, "schema": wanted.schema}
    return {"type": "json_schema", "json_schema": schema | ({"strict": True} if wanted.strict else {})}


def _given(value: Raw) -> bool:
    return bytes(value) not in (b"", b"null")
