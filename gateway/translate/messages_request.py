"""A Messages request as a chat completion request.

Fields that Anthropic's API does not know (`seed`, `min_p`, `chat_template_kwargs`, …) are meant for the engine and
reach it as they are. Those that only concern Anthropic's servers (caching, tiers, containers) are left out: they
change what a request costs there, not what is answered. What would change the answer is refused.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from gateway.errors import ApiError
from gateway.translate.anthropic import MessagesRequest, Tool, ToolChoice
from gateway.translate.failures import unsupported
from gateway.translate.messages_turns import Json, build_messages

_THEIRS = frozenset(
    {
        "cache_control", "container", "context_management", "diagnostics", "fallbacks", "inference_geo",
        "output_format", "service_tier", "speed", "user_profile_id", "workspace_id",
    }
)  # fmt: skip
_NEVER = frozenset({"n", "stream_options", "function_call", "functions", "max_completion_tokens"})
"""Would change the shape of the engine's answer, or contradict what the request says in its own dialect."""
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}

_decoder = msgspec.json.Decoder(MessagesRequest)
_fields = msgspec.json.Decoder(dict[str, Raw])


class AskedMessage(msgspec.Struct, frozen=True):
    """A request, read."""

    request: MessagesRequest
    extra: Mapping[str, Raw]
    """Fields for the engine."""
    size_bytes: int

    @property
    def estimated_tokens(self) -> int:
        """Of the prompt, for who must say a number before the engine has: four bytes of JSON for each."""
        return max(1, self.size_bytes // 4)


def read_request(body: bytes) -> AskedMessage:
    """Raises: ApiError (400), which names the place of what is wrong."""
    try:
        request = _decoder.decode(body)
        fields = _fields.decode(body)
    except msgspec.ValidationError as error:
        raise ApiError(400, "invalid_request", f"The request is not valid: {error}.") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ApiError(400, "invalid_json", f"The request's body is not valid JSON: {error}.") from None
    except RecursionError:
        raise ApiError(400, "invalid_json", "The request's body is nested too deeply.") from None
    if request.mcp_servers:
        raise unsupported("it reaches no MCP servers")
    known = {*MessagesRequest.__struct_fields__, "model"}
    extra = {name: value for name, value in fields.items() if name not in known | _THEIRS | _NEVER}
    return AskedMessage(request, extra, len(body))


def build_chat_request(asked: AskedMessage, model: str) -> bytes:
    """The body that an engine gets which calls the model `model`. Raises: ApiError."""
    request = asked.request
    ours: Json = {"model": model, "messages": build_messages(request)}
    if request.max_tokens is not None:
        ours["max_tokens"] = max(1, request.max_tokens)
    if request.stream:
        ours["stream"] = True
        # The second is vLLM's: with it the first chunk already counts the prompt.
        ours["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return _encode({**_wishes(request), **asked.extra, **ours})


def build_count_request(asked: AskedMessage, model: str) -> bytes:
    """A chat completion that is asked only for what its prompt counts."""
    ours: Json = {"model": model, "messages": build_messages(asked.request), "max_tokens": 1}
    return _encode({**_wishes(asked.request), **asked.extra, **ours})


def _encode(request: Json) -> bytes:
    try:
        return msgspec.json.encode(request)
    except UnicodeError:
        raise ApiError(400, "invalid_request", "The request holds a text that is not Unicode.") from None


def _wishes(request: MessagesRequest) -> Json:
    """How it is to be answered; what the request does not say is left to the engine."""
    choice = request.tool_choice
    output = request.output_config
    wishes: Json = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "stop": request.stop_sequences or None,
        "tools": [_tool(tool) for tool in request.tools] if request.tools else None,
        "tool_choice": _choice(choice) if choice is not None and request.tools else None,
        "parallel_tool_calls": False if choice is not None and choice.disable_parallel_tool_use else None,
        "user": request.metadata.user_id if request.metadata is not None else None,
        "chat_template_kwargs": _template(request),
    }
    if output is not None:
        wishes["reasoning_effort"] = _EFFORTS.get(output.effort or "")
        if output.format is not None:
            schema = {"name": "answer", "strict": True, "schema": output.format.schema}
            wishes["response_format"] = {"type": "json_schema", "json_schema": schema}
    return {name: value for name, value in wishes.items() if value is not None}


def _template(request: MessagesRequest) -> Json | None:
    """Chat templates know two words for whether the model is to think first."""
    if request.thinking is None:
        return None
    thinks = request.thinking.type != "disabled"
    return {"enable_thinking": thinks, "thinking": thinks}


def _tool(tool: Tool) -> Json:
    if not bytes(tool.input_schema) or tool.type not in (None, "custom"):
        raise unsupported(f"it has no tool of the type '{(tool.type or 'without input_schema')[:100]}'")
    function: Json = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice) -> str | Json:
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return _CHOICES[choice.type]
