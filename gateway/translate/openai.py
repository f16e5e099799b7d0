"""OpenAI's Responses request, as far as a chat completion can say it.

Items have many kinds and a message may leave its `type` out, so one struct stands for all of them, and
`gateway.translate.responses_request` says which of its fields a kind must have.
"""

from typing import Literal

import msgspec
from msgspec import Raw


class Part(msgspec.Struct, frozen=True):
    """A piece of a message: `input_text`, `output_text`, `input_image`, `refusal`, …"""

    type: str
    text: str = ""
    refusal: str = ""
    image_url: str | None = None
    detail: str | None = None


class Item(msgspec.Struct, frozen=True):
    """Something said, done or thought."""

    type: str = "message"
    role: Literal["user", "assistant", "system", "developer"] = "user"
    content: str | list[Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str | list[Part] = ""


class Tool(msgspec.Struct, frozen=True):
    type: str
    name: str = ""
    description: str | None = None
    parameters: Raw = Raw()
    strict: bool | None = None


class ToolChoice(msgspec.Struct, frozen=True):
    type: str
    name: str = ""


class Format(msgspec.Struct, frozen=True):
    type: Literal["text", "json_object", "json_schema"]
    name: str = "answer"
    schema: Raw = Raw()
    strict: bool | None = None


class TextConfig(msgspec.Struct, frozen=True):
    format: Format | None = None


class Reasoning(msgspec.Struct, frozen=True):
    effort: str | None = None


class ResponsesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /v1/responses`."""

    input: str | list[Item]
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["auto", "none", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    background: bool | None = None
    conversation: Raw = Raw()
    previous_response_id: str | None = None
    prompt: Raw = Raw()
