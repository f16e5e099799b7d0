"""Of a request's body, read only what the router needs; the engine gets the original bytes.

A body is `Asked` or an `ApiError` with status 400 or 415: nothing that a client can send ends as a 500. Parsing
the whole, but for what is inside long strings (`gateway/shorten.py`), costs little and is what makes a broken body
our clear 400 instead of an engine's surprise.

Duplicate keys: the last one counts, as in every JSON reader that our engines use, so the model that was
authorised is the model that answers.
"""

import msgspec
from msgspec import UNSET, UnsetType

from gateway.errors import ApiError
from gateway.shorten import shorten_strings


class StreamOptions(msgspec.Struct, frozen=True):
    """OpenAI's `stream_options`, as far as it concerns us."""

    include_usage: bool | None = None


class Asked(msgspec.Struct, frozen=True):
    """What a request asks for. `stream: null` is the same as leaving it out."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None | UnsetType = UNSET

    @property
    def wants_usage(self) -> bool:
        return isinstance(self.stream_options, StreamOptions) and self.stream_options.include_usage is True

    @property
    def has_stream_options(self) -> bool:
        return self.stream_options is not UNSET


_LARGE_BYTES = 128 << 10

_decoder = msgspec.json.Decoder(Asked)


def read_asked(body: bytes) -> Asked:
    """Decode the body of a JSON inference request. Raises: ApiError (400)."""
    try:
        if not body.isascii():
            body.decode()  # what the decoder skips it does not look at, and an engine would have to
        asked = _decoder.decode(shorten_strings(body) if len(body) > _LARGE_BYTES else body)
    except msgspec.ValidationError as error:
        raise ApiError(400, "invalid_request", f"The request is not valid: {error}.") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        if not body:
            raise ApiError(400, "invalid_json", "The request has no body; a JSON object is expected.") from None
        raise ApiError(400, "invalid_json", f"The request's body is not valid JSON: {error}.") from None
    except RecursionError:
        # Not a MsgspecError: the decoder counts Python's recursion limit.
        raise ApiError(400, "invalid_json", "The request's body is nested too deeply.") from None
    if not asked.model:
        raise ApiError(400, "missing_model", "The request does not say which `model` it is for.")
    return asked


def check_content(content_type: bytes, content_encoding: bytes) -> None:
    """Refuse what cannot be read as JSON. Raises: ApiError (415).

    Any type but multipart is tried: `curl -d` sends `application/x-www-form-urlencoded` with perfectly good JSON,
    and the parser is the better judge.
    """
    if content_encoding and content_encoding.lower() != b"identity":
        raise ApiError(415, "unsupported_content_encoding", "Compressed request bodies are not supported here.")
    if content_type[:10].lower() == b"multipart/":
        raise ApiError(415, "unsupported_content_type", "This endpoint expects application/json.")
