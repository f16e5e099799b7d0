"""Asking an engine for the usage of a stream that its client did not ask for, and keeping that from the client.

Some engines count a stream only when asked (`stream_options.include_usage`), and then in an event of its own with no
choices in it, on which a client that expects none may break. The request is edited by a splice: what the client wrote
stays as it is, byte for byte. Pure.
"""

import re

import msgspec

from core.api import RouteTarget
from gateway.ending import RequestRecord
from gateway.table import CHAT, COMPLETIONS
from gateway.translate.sse import read_data

_PATHS = frozenset({CHAT, COMPLETIONS})
"""Where `stream_options` is known; in the other dialects a stream tells its usage unasked."""
_ASK = b',"stream_options":{"include_usage":true}}'

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def may_be_asked(record: RequestRecord) -> bool:
    """Whether this is a request whose answer may hide its usage from us."""
    return record.stream and not record.wants_usage and record.path in _PATHS


def is_asked(record: RequestRecord, target: RouteTarget) -> bool:
    """Whether this target is asked for the usage of a request that does not ask for it."""
    return target.usage_when_asked and may_be_asked(record)


def ask_for_usage(body: bytes, *, has_options: bool) -> bytes:
    """A request's body, which is a JSON object with members, that asks for usage.

    `has_options`: it has `stream_options`, which do not. They keep their other members, and the request those around
    them; only such a body loses the blanks between its members.
    """
    if not has_options:
        # One copy, of what may be megabytes.
        return b"".join((memoryview(body)[: body.rindex(b"}")], _ASK))
    fields = _fields.decode(body)
    try:
        options = _fields.decode(fields["stream_options"])
    except msgspec.MsgspecError:
        options = {}
    fields["stream_options"] = msgspec.Raw(msgspec.json.encode(options | {"include_usage": msgspec.Raw(b"true")}))
    return msgspec.json.encode(fields)


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[msgspec.Raw]
    usage: dict[str, msgspec.Raw]


_chunk = msgspec.json.Decoder(_Chunk)


class UsageEvents:
    """The events that nobody but us has asked for (`core.http.trim.Unwanted`)."""

    needle = b'"usage"'
    pattern = re.compile(rb'"usage"\s*:\s*\{')

    def is_unwanted(self, event: bytes) -> bool:
        """Whether it has usage and no choices: a usage beside choices is an engine's own way, and the client's."""
        try:
            return not _chunk.decode(read_data(event)).choices
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return False


USAGE_EVENTS = UsageEvents()
