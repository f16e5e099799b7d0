"""What we read of an answer to a chat completion, whole or one chunk of it. Everything else is ignored.

Fields that engines add to OpenAI's: `reasoning_content` (llama.cpp, SGLang, vLLM before 0.13) or `reasoning` (vLLM)
for what the model thought; `stop_reason` (vLLM) or `matched_stop` (SGLang) for the stop string that was met, which
may be a token's number, or null.
"""

import msgspec

from gateway.translate.failures import BadAnswer


class Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | dict[str, object] | None = None
    """JSON in a string; some engines give the object itself."""

    @property
    def text(self) -> str:
        if isinstance(self.arguments, dict):
            return msgspec.json.encode(self.arguments).decode()
        return self.arguments or ""


class ToolCall(msgspec.Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: Function = Function()


class Said(msgspec.Struct, frozen=True):
    """A message, or what a chunk adds to it."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None

    @property
    def thought(self) -> str:
        return self.reasoning_content or self.reasoning or ""

    @property
    def text(self) -> str:
        return self.content or self.refusal or ""


class Choice(msgspec.Struct, frozen=True):
    index: int = 0
    message: Said | None = None
    delta: Said | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    matched_stop: str | int | list[int] | None = None


class PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None

    @property
    def cached_tokens(self) -> int:
        details = self.prompt_tokens_details
        return min((details.cached_tokens or 0) if details is not None else 0, self.prompt_tokens)


class ChatAnswer(msgspec.Struct, frozen=True):
    id: str = ""
    choices: list[Choice] = []
    usage: Usage | None = None
    error: msgspec.Raw = msgspec.Raw()
    """There when the engine failed after it had begun to answer."""

    @property
    def choice(self) -> Choice | None:
        """The one that we asked for."""
        return next((choice for choice in self.choices if choice.index == 0), None)


_decoder = msgspec.json.Decoder(ChatAnswer)


def read_chat(data: bytes) -> ChatAnswer:
    """An answer, or one chunk. Raises: BadAnswer."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadAnswer(f"no chat completion: {error}") from error
