"""Giving a model another name on its way to an engine and back.

Needed only where the client's id is not the engine's own name for the model: an alias, or a target with
`upstreamModel`. Engines that we start run under the client's id, and then nothing is rewritten. Everything but the
one value stays as it is, byte for byte inside each field; no field is interpreted, so unknown ones survive.
"""

import re

import msgspec

_LONGEST_LINE = 1 << 20
"""Bytes of an unfinished line that are held back before they pass as they are."""

_MODEL_FIELD = re.compile(rb'"model"\s*:\s*"(?:[^"\\]|\\.)*"')
"""The field in a line of JSON. Inside a JSON string its quotes would be escaped, so a text cannot forge it."""

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def rename_model(body: bytes, name: str) -> bytes:
    """A JSON object with its top-level `model` replaced; anything that is not one, or has no model, unchanged."""
    try:
        fields = _fields.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return body
    if "model" not in fields:
        return body
    fields["model"] = msgspec.Raw(msgspec.json.encode(name))
    return msgspec.json.encode(fields)


class StreamRenamer:
    """Replaces `model` in the events of an SSE stream, whole lines at a time, by a search for its bytes."""

    def __init__(self, name: str) -> None:
        self._field = b'"model":' + msgspec.json.encode(name)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be sent on now; an unfinished line waits for its end."""
        data = self._held + data
        end = data.rfind(b"\n") + 1
        self._held = data[end:]
        if len(self._held) > _LONGEST_LINE:
            self._held, end = b"", len(data)
        return b"".join(self._rename_line(line) for line in data[:end].splitlines(keepends=True))

    def finish(self) -> bytes:
        """What was held back when the stream ended."""
        held, self._held = self._held, b""
        return self._rename_line(held)

    def _rename_line(self, line: bytes) -> bytes:
        if not line.startswith(b"data:"):
            return line
        return _MODEL_FIELD.sub(lambda _: self._field, line, count=1)
