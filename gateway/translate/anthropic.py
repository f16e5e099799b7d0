"""Anthropic's Messages request, as far as a chat completion can say it.

Blocks that only Anthropic's own servers can make or read (server tools and their results, uploaded files) are not
among the types, so that a request with one is refused with its place instead of being answered without it.
"""

from typing import Literal

import msgspec
from msgspec import Raw


class Text(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class Base64Source(msgspec.Struct, frozen=True, tag_field="type", tag="base64"):
    media_type: str
    data: str


class UrlSource(msgspec.Struct, frozen=True, tag_field="type", tag="url"):
    url: str


class FileSource(msgspec.Struct, frozen=True, tag_field="type", tag="file"):
    file_id: str


class TextSource(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    data: str


class Image(msgspec.Struct, frozen=True, tag_field="type", tag="image"):
    source: Base64Source | UrlSource | FileSource


class ContentSource(msgspec.Struct, frozen=True, tag_field="type", tag="content"):
    content: str | list[Text | Image]


class Document(msgspec.Struct, frozen=True, tag_field="type", tag="document"):
    source: Base64Source | UrlSource | FileSource | TextSource | ContentSource
    title: str | None = None
    context: str | None = None


class SearchResult(msgspec.Struct, frozen=True, tag_field="type", tag="search_result"):
    source: str
    title: str
    content: list[Text]


class Thinking(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    thinking: str


class RedactedThinking(msgspec.Struct, frozen=True, tag_field="type", tag="redacted_thinking"):
    """Readable by Anthropic's servers alone."""


class ToolUse(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: Raw


class ToolResult(msgspec.Struct, frozen=True, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: str | list[Text | Image | Document | SearchResult] | None = None
    is_error: bool | None = None


Shown = Text | Image | Document | SearchResult
"""What a user, or a tool, shows to the model."""
Block = Text | Image | Document | SearchResult | Thinking | RedactedThinking | ToolUse | ToolResult


class Turn(msgspec.Struct, frozen=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]

    @property
    def blocks(self) -> list[Block]:
        return [Text(self.content)] if isinstance(self.content, str) else self.content


class Tool(msgspec.Struct, frozen=True):
    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: Raw = Raw()
    """Empty when there is none; a union with None would decode it."""
    strict: bool | None = None


class ToolChoice(msgspec.Struct, frozen=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool | None = None


class ThinkingConfig(msgspec.Struct, frozen=True):
    type: str


class OutputFormat(msgspec.Struct, frozen=True):
    type: Literal["json_schema"]
    schema: Raw


class OutputConfig(msgspec.Struct, frozen=True):
    effort: str | None = None
    format: OutputFormat | None = None


class Metadata(msgspec.Struct, frozen=True):
    user_id: str | None = None


class MessagesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /v1/messages`, and `/v1/messages/count_tokens`, which has no `max_tokens`."""

    messages: list[Turn]
    max_tokens: int | None = None
    system: str | list[Text] | None = None
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    metadata: Metadata | None = None
    mcp_servers: list[Raw] | None = None
