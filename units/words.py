"""systemd's way of writing words in a unit file: one function writes them, its inverse reads them.

systemd reads a line like `ExecStart=` in three steps, each with characters of its own: words are split and
unquoted (blanks, quotes, backslash), then specifiers are filled in (`%`), and, when the process starts, variables
(`$`; in `ExecStart=` only). `quote_word` writes a word so that all three give back exactly that word; the embedded
supervisor reads with `split_words`, which does the same three steps. Lines that hold one value up to their end
(`WorkingDirectory=`, `Description=`) know no quotes: `escape_line` and `unescape_line`.

What no line can carry is refused, naming the directive: control characters (a newline would begin another
directive), what is not Unicode text, and what systemd drops silently. Pure; the grammar is that of systemd 252
(`extract_first_word`, `specifier_printf`, `replace_env_argv`), and `tests/contract` holds it against the real one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.errors import ConfigError

MAX_WORD_BYTES = 128 * 1024 - 1
"""The kernel's limit for one argument (MAX_ARG_STRLEN with the final NUL)."""

NO_SPECIFIERS: Mapping[str, str] = {}

_BLANKS = " \t\n\r"
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./$%-]+")
_VARIABLE = re.compile(r"\$\$|\$\{([^}]*)\}")
_SPECIFIER = re.compile(r"%(.?)", re.DOTALL)
_C_ESCAPES = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "s": 32, "\\": 92, '"': 34, "'": 39}
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-3][0-7]{2})")


class WordRefused(ConfigError):
    """A value that no unit file can carry; the message names the directive."""

    code = "unit_value_refused"


class WordsUnreadable(ConfigError):
    """A line of a unit file that does not split into words."""

    code = "unit_line_unreadable"


def check_text(text: str, directive: str) -> None:
    """Raise `WordRefused` unless a unit file can carry `text` at all."""
    for char in text:
        if _is_forbidden(ord(char)):
            raise WordRefused(
                f"the value for {directive} holds U+{ord(char):04X}, which a unit file cannot carry: {text[:60]!r}",
                hint="take control characters and line breaks out of the value",
            )
    if len(text.encode()) > MAX_WORD_BYTES:
        raise WordRefused(f"the value for {directive} is longer than {MAX_WORD_BYTES} bytes: {text[:60]!r}…")


def _is_forbidden(code: int) -> bool:
    """Controls (C0, DEL, C1), lone surrogates, and the noncharacters for which systemd drops the whole line."""
    is_control = code < 0x20 or 0x7F <= code < 0xA0
    is_no_text = 0xD800 <= code < 0xE000 or 0xFDD0 <= code < 0xFDF0 or code & 0xFFFE == 0xFFFE
    return is_control or is_no_text


def quote_word(word: str, *, directive: str = "ExecStart", dollars: bool = True) -> str:
    """One word as a unit file writes it. `dollars`: whether the directive fills in variables (`ExecStart=` alone does).

    Raises: WordRefused.
    """
    return quote_parts((word,), directive=directive, dollars=dollars)


def quote_parts(parts: Sequence[str], *, between: str = "", directive: str = "ExecStart", dollars: bool = True) -> str:
    """One word whose parts are joined by a specifier (`between="%d"`), which is left for systemd to fill in.

    Raises: WordRefused.
    """
    check_text("".join(parts), directive)
    escaped = between.join(part.replace("%", "%%") for part in parts)
    if dollars:
        escaped = escaped.replace("$", "$$")
    return escaped if _PLAIN.fullmatch(escaped) else wrap_quotes(escaped)


def wrap_quotes(text: str) -> str:
    """`text` in double quotes. Only two escapes: lists of paths are unquoted too, but know no others."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def escape_line(value: str, *, directive: str) -> str:
    """A value that reaches to the end of its line.

    Raises: WordRefused, also for blanks at either end (they are stripped when read) and for a backslash at the
    end (it joins the next line).
    """
    check_text(value, directive)
    if value != value.strip() or value.endswith("\\"):
        raise WordRefused(f"the value for {directive} begins or ends with a blank, or ends with a backslash: {value!r}")
    return value.replace("%", "%%")


def unescape_line(text: str, specifiers: Mapping[str, str] = NO_SPECIFIERS) -> str:
    """The inverse of `escape_line`. Raises: WordsUnreadable."""
    return _fill_specifiers(text.strip(_BLANKS), specifiers)


def split_words(
    text: str, env: Mapping[str, str] | None = None, specifiers: Mapping[str, str] = NO_SPECIFIERS
) -> list[str]:
    """The words of a line, as the process would get them: the inverse of `quote_word`, word by word.

    `env` is what `${X}` and a lone `$X` stand for; None for directives in which `$` means nothing. `specifiers`
    maps the letter after `%` to its value (`d`: the credentials directory).

    Raises: WordsUnreadable for what systemd refuses (an open quote, an unknown escape), for a specifier that is
    not given, and for a second command after `;`, which we never write.
    """
    words: list[str] = []
    for token in _tokens(text, c_escapes=True, relaxed=False):
        if env is not None and token.is_bare and token.raw == ";":
            raise WordsUnreadable(f"more than one command in a line: {text[:200]!r}")
        word = _fill_specifiers(token.text, specifiers)
        words.extend([word] if env is None else _fill_variables(word, env))
    return words


@dataclass(frozen=True, slots=True)
class _Token:
    """One word before specifiers and variables; `is_bare`: written without quotes."""

    text: str
    raw: str
    is_bare: bool


def _tokens(text: str, *, c_escapes: bool, relaxed: bool) -> Iterator[_Token]:
    """`extract_first_word`, repeatedly. `relaxed` forgives an open quote or a backslash at the end."""
    at = 0
    while (at := _skip_blanks(text, at)) < len(text):
        begin, quote, quoted, collected = at, "", False, bytearray()
        while at < len(text) and (quote or text[at] not in _BLANKS):
            char = text[at]
            at += 1
            if char == quote:
                quote = ""
            elif char in "\"'" and not quote:
                quote, quoted = char, True
            elif char == "\\":
                value, at = _read_escape(text, at, c_escapes=c_escapes, relaxed=relaxed)
                collected += value
            else:
                collected += char.encode("utf-8", "surrogatepass")
        if quote and not relaxed:
            raise WordsUnreadable(f"a quote is open at the end: {text[:200]!r}")
        yield _Token(_decode(collected, text), text[begin:at], not quoted)


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def _decode(data: bytearray, text: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise WordsUnreadable(f"a word is not UTF-8 text: {text[:200]!r}") from error


def _read_escape(text: str, at: int, *, c_escapes: bool, relaxed: bool) -> tuple[bytes, int]:
    """What the backslash before `at` stands for, and where to go on."""
    if at >= len(text):
        if relaxed:
            return b"\\", at
        raise WordsUnreadable(f"a backslash at the end: {text[:200]!r}")
    char = text[at]
    if not c_escapes:
        return char.encode(), at + 1
    if char in _C_ESCAPES:
        return bytes([_C_ESCAPES[char]]), at + 1
    if char == ";" and text[at + 1 : at + 2] in ("", *_BLANKS) and (at < 2 or text[at - 2] in _BLANKS):
        return b";", at + 1
    found = _HEX.match(text, at)
    if found is None:
        raise WordsUnreadable(f"an unknown escape \\{char}: {text[:200]!r}")
    return _escaped_bytes(found, text), found.end()


def _escaped_bytes(found: "re.Match[str]", text: str) -> bytes:
    """`\\x41` and `\\101` are bytes, `\\u` and `\\U` are code points; none may be NUL."""
    byte, short, long, octal = found.groups()
    code = int(octal, 8) if octal else int(byte or short or long, 16)
    if code == 0 or code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise WordsUnreadable(f"the escape \\{found[0]} is no character: {text[:200]!r}")
    return bytes([code]) if byte or octal else chr(code).encode()


def _fill_specifiers(text: str, specifiers: Mapping[str, str]) -> str:
    def fill(found: "re.Match[str]") -> str:
        letter = found[1]
        if letter == "%":
            return "%"
        if letter not in specifiers:
            raise WordsUnreadable(f"the specifier %{letter} is not known here: {text[:200]!r}")
        return specifiers[letter]

    return _SPECIFIER.sub(fill, text)


def _fill_variables(word: str, env: Mapping[str, str]) -> list[str]:
    """`replace_env_argv`: a word that is `$X` alone becomes any number of words, `${X}` stays inside its word."""
    if word.startswith("$") and word[1:2] not in ("$", "{"):
        value = env.get(word[1:], "")
        return [token.text for token in _tokens(value, c_escapes=False, relaxed=True)]
    return [_VARIABLE.sub(lambda found: "$" if found[0] == "$$" else env.get(found[1], ""), word)]
