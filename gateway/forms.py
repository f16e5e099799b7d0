"""Forms with files (`multipart/form-data`): the model is read of the part that has arrived, the rest passes through.

Pure. Fields come in the order in which a client wrote them. OpenAI's SDKs send text before files; who writes the file
first has it held here, up to the size that a JSON body may have, until the model is known. Of two fields of the name
the first counts.
"""

import re
from typing import NamedTuple

from gateway.errors import ApiError

MAX_EARLY_BYTES = 64 << 20
_LONGEST_HEAD = 16 << 10
_LONGEST_VALUE = 1 << 10
_BOUNDARY = re.compile(rb';\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s;"]{1,70})(?=[\s;]|$))', re.IGNORECASE)
_NAME = re.compile(rb';\s*name="([^"\r\n]*)"', re.IGNORECASE)
_DISPOSITION = re.compile(rb"^content-disposition:([^\r\n]*)", re.IGNORECASE | re.MULTILINE)


class Field(NamedTuple):
    """A text field, and where its value stands among the bytes of the form."""

    name: bytes
    value: bytes
    begin: int


def read_boundary(content_type: bytes) -> bytes:
    """What separates the parts. Raises: ApiError (415, 400)."""
    if content_type[:19].lower() != b"multipart/form-data":
        raise ApiError(415, "unsupported_content_type", "This endpoint expects multipart/form-data.")
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise ApiError(400, "invalid_form", "The form's Content-Type names no boundary.")
    return bytes(found[1] or found[2])


class FormReader:
    """The fields of a form, as far as it has come. Raises: ApiError for what is no form."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._at = 0
        """Where the next part begins; before the first: 0."""
        self._sought = 0
        """Up to where the end of the present part was looked for in vain."""
        self.is_over = False
        """No part follows."""

    def next_field(self, data: bytearray) -> Field | None:
        """The next text field in `data`, the form from its start; None: more of it is needed, or it is over."""
        while not self.is_over:
            begin = self._find_part(data)
            if begin is None:
                return None
            head_end = data.find(b"\r\n\r\n", begin - 2, begin + _LONGEST_HEAD)
            if head_end < 0:
                if len(data) - begin > _LONGEST_HEAD:
                    raise ApiError(400, "invalid_form", "The form is not valid: a part has no end of its headers.")
                return None
            value_begin = head_end + 4
            value_end = data.find(self._delimiter, max(value_begin - 2, self._sought))
            if value_end < 0:
                self._sought = max(value_begin - 2, len(data) - len(self._delimiter))
                return None
            field = _read_field(bytes(data[begin:head_end]), data, value_begin, max(value_end, value_begin))
            self._at = value_end
            self._sought = 0
            if field is not None:
                return field
        return None

    def _find_part(self, data: bytearray) -> int | None:
        """Where the headers of the next part begin; None: not there yet, or there is none."""
        delimiter = self._delimiter
        if self._at == 0:
            # The first one may stand at the very beginning, without a line break before it.
            first = delimiter[2:]
            if len(data) < len(first) + 2:
                return None
            if not data.startswith(first):
                raise ApiError(400, "invalid_form", "The form is not valid: it does not begin with its boundary.")
            after = len(first)
        else:
            after = self._at + len(delimiter)
        if len(data) < after + 2:
            return None
        mark = bytes(data[after : after + 2])
        if mark == b"--":
            self.is_over = True
            return None
        if mark != b"\r\n":
            raise ApiError(400, "invalid_form", "The form is not valid: its boundary is followed by something else.")
        return after + 2


def _read_field(head: bytes, data: bytearray, begin: int, end: int) -> Field | None:
    """None for a file, and for what is too long to be of interest."""
    disposition = _DISPOSITION.search(head)
    name = _NAME.search(disposition[1]) if disposition is not None else None
    if name is None or disposition is None or b"filename" in disposition[1].lower() or end - begin > _LONGEST_VALUE:
        return None
    return Field(bytes(name[1]), bytes(data[begin:end]), begin)
