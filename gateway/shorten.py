"""Leaves the inside of very long strings out of a JSON text before it is decoded for its other members.

A request with an image is a few hundred bytes that we read and megabytes of base64 that we skip; a JSON decoder looks
at each of those bytes, which costs more than all else that we do with such a request. Finding a quote is twenty times
faster (memchr). Whoever reads the shortened text sees the same members, but for strings over 64 KiB: such a string ends
at its last quote before the long run, so it is empty or ends in a quote, and can be mistaken for no name that we know.

Pure. Where there is the least doubt whether a long run without quotes is inside a string, the text is left as it is.
"""

_LONG_BYTES = 64 << 10


def shorten_strings(text: bytes) -> bytes:
    """`text`, which should be JSON and need not, without the inside of its long strings."""
    if len(text) < 2 * _LONG_BYTES:
        return text
    kept: list[bytes] = []
    copied = counted = at = 0
    is_inside = False
    while at + _LONG_BYTES < len(text):
        probe = at + _LONG_BYTES
        closing = text.find(b'"', probe)
        if closing < 0:
            break
        opening = text.rfind(b'"', at, probe)
        if opening < counted or closing - opening < _LONG_BYTES:
            at = probe
            continue
        quotes = _count_quotes(text, counted, opening + 1)
        if quotes is None:
            return text
        is_inside ^= bool(quotes & 1)
        counted = at = opening + 1
        if is_inside:
            if text[closing - 1] == 0x5C:  # a backslash: this quote may be one of the string's characters
                return text
            kept.append(text[copied:counted])
            copied = counted = closing
        at = max(at, closing - 1)
    if not kept:
        return text
    kept.append(text[copied:])
    return b"".join(kept)


def _count_quotes(text: bytes, begin: int, end: int) -> int | None:
    """How many quotes that begin or end a string are between; None when an escaped backslash makes it unclear."""
    quotes = text.count(b'"', begin, end)
    if text.find(b"\\", begin, end) < 0:
        return quotes
    if text.find(b"\\\\", begin, end) >= 0:
        return None
    return quotes - text.count(b'\\"', begin, end)
