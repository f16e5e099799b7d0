"""What an engine says of the tokens of one answer, found in its first and last bytes. Pure.

An answer may have megabytes, and its `usage` is a hundred bytes near one of its ends: last in OpenAI's answers and
streams, first in llama.cpp's embeddings, and in Anthropic's streams the prompt stands in the first event and the answer
in the last but one. llama.cpp's streams of chat completions tell it unasked, in the `timings` of their last event. So
the ends are searched for the key, and only the object behind it is decoded. A text cannot forge the key: inside a JSON
string its quotes are escaped.

The bytes are those of the wire, so a stream's have chunk framing between (and, from some proxies, inside) the events.
"""

import re
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

_KEY = b'"usage"'
_USUAL = b'"usage":{'
_TIMINGS = b'"timings"'
_OPENING = re.compile(rb"\s*:\s*\{")
_FRAMING = re.compile(rb"\r\n[0-9A-Fa-f]{1,8}\r\n")
_LONGEST = 4096
"""Bytes of a usage object that are looked at."""
_MOST = 8
"""Usage objects that are looked at, at each end."""

T = TypeVar("T")

Tokens = Annotated[int, Meta(ge=0, le=1 << 48)]


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: Tokens | None = None


class _Usage(msgspec.Struct, frozen=True):
    """OpenAI's chat and embeddings (`prompt_tokens`), its Responses (`input_tokens`), and Anthropic's, in one."""

    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    total_tokens: Tokens | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: Tokens | None = None
    cache_creation_input_tokens: Tokens | None = None


class _Usual(msgspec.Struct, frozen=True):
    """OpenAI's chat and embeddings: nearly all there is."""

    prompt_tokens: Tokens
    completion_tokens: Tokens | None = None
    total_tokens: Tokens | None = None
    prompt_tokens_details: _Details | None = None


class _Timings(msgspec.Struct, frozen=True):
    """llama.cpp's; what came from the cache is counted beside the rest of the prompt."""

    prompt_n: Tokens
    predicted_n: Tokens
    cache_n: Tokens = 0


class Told(msgspec.Struct, frozen=True):
    """An engine's own counts; None: it did not say."""

    prompt: int | None = None
    """All that it read, cached tokens included."""
    cached: int = 0
    completion: int | None = None
    is_total: bool = False
    """These are counts of everything up to the place where they stood, not those of an answer's beginning."""


NOTHING = Told()

_decoder = msgspec.json.Decoder(_Usage)
_usual_decoder = msgspec.json.Decoder(_Usual)
_timings_decoder = msgspec.json.Decoder(_Timings)


def find_told(begin: bytes, tail: bytes) -> Told:
    """What was told, last word first. `begin` and `tail` may overlap; an empty `begin` is part of the tail."""
    _, key, rest = tail.rpartition(_USUAL)
    if key:
        # What nearly every request is: done here, without all the rest.
        inside, closing, rest = rest.partition(b"}")
        if b"{" in inside:
            inside, closing = _to_its_end(inside, rest[:_LONGEST])
        usage = _decode_usual(b"{" + inside + closing)
        if usage is not None:
            cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details is not None else 0
            prompt = usage.prompt_tokens
            return Told(prompt, min(cached or 0, prompt), usage.completion_tokens, usage.total_tokens is not None)
    told = _find_at_end(tail)
    if told.prompt is None and b"\r\n" in tail:
        # An object that was cut into two chunks is whole again without the framing.
        told = _find_at_end(_FRAMING.sub(b"", tail))
    if told.prompt is None and begin:
        first = _search(begin, NOTHING)
        completion = first.completion if told.completion is None else told.completion
        told = Told(first.prompt, first.cached, completion)
    return told


def _to_its_end(inside: bytes, rest: bytes) -> tuple[bytes, bytes]:
    """An object with others in it, known as far as `inside`, to its own brace, and that; nothing: it is cut off."""
    depth = inside.count(b"{")
    while depth:
        part, closing, rest = rest.partition(b"}")
        if not closing:
            return inside, b""
        inside += b"}" + part
        depth += part.count(b"{") - 1
    return inside, b"}"


def _decode_usual(data: bytes) -> _Usual | None:
    try:
        return _usual_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None  # another dialect's, cut off, or between two chunks


def _find_at_end(tail: bytes) -> Told:
    told = _search(tail, NOTHING)
    return told if told.prompt is not None else _search_timings(tail) or told


def _search(data: bytes, told: Told) -> Told:
    end = len(data)
    for _ in range(_MOST):
        end = data.rfind(_KEY, 0, end)
        if end < 0:
            break
        usage = _read(_decoder, data, end + len(_KEY))
        if usage is not None:
            told = _tell(usage) if told is NOTHING else _join(_tell(usage), told)
            if told.prompt is not None:
                break
    return told


def _search_timings(data: bytes) -> Told | None:
    at = data.rfind(_TIMINGS)
    timings = _read(_timings_decoder, data, at + len(_TIMINGS)) if at >= 0 else None
    if timings is None:
        return None
    return Told(timings.cache_n + timings.prompt_n, timings.cache_n, timings.predicted_n, is_total=True)


def _read(decoder: msgspec.json.Decoder[T], data: bytes, at: int) -> T | None:
    """The object that begins behind `at`; None when it is none, is cut off, or holds no counts that could be."""
    if data.startswith(b":{", at):
        begin = at + 1
    else:
        opening = _OPENING.match(data, at)
        if opening is None:
            return None
        begin = opening.end() - 1
    limit = begin + _LONGEST
    inner, end = data.find(b"{", begin + 1, limit), data.find(b"}", begin, limit)
    while 0 <= inner < end:
        # Each object inside takes one closing brace.
        inner, end = data.find(b"{", inner + 1, limit), data.find(b"}", end + 1, limit)
    if end < 0:
        return None
    try:
        return decoder.decode(data[begin : end + 1])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _tell(usage: _Usage) -> Told:
    completion = usage.completion_tokens if usage.completion_tokens is not None else usage.output_tokens
    total = usage.total_tokens
    if usage.prompt_tokens is not None:
        details = usage.prompt_tokens_details
        return _told(usage.prompt_tokens, details, completion, is_total=total is not None)
    if usage.input_tokens is None:
        prompt = total - (completion or 0) if total is not None else None
        return Told(max(prompt, 0) if prompt is not None else None, 0, completion, total is not None)
    if usage.cache_read_input_tokens is None and usage.cache_creation_input_tokens is None:
        return _told(usage.input_tokens, usage.input_tokens_details, completion, is_total=total is not None)
    # Anthropic counts what came from the cache, and what went there, beside the rest.
    cached = usage.cache_read_input_tokens or 0
    return Told(usage.input_tokens + cached + (usage.cache_creation_input_tokens or 0), cached, completion)


def _told(prompt: int, details: _Details | None, completion: int | None, *, is_total: bool) -> Told:
    cached = (details.cached_tokens or 0) if details is not None else 0
    return Told(prompt, min(cached, prompt), completion, is_total)


def _join(earlier: Told, later: Told) -> Told:
    """What stood earlier in the answer counts where nothing was said after it."""
    return Told(
        earlier.prompt if later.prompt is None else later.prompt,
        earlier.cached if later.prompt is None else later.cached,
        earlier.completion if later.completion is None else later.completion,
        earlier.is_total or later.is_total,
    )
