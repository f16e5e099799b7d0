"""A service's environment, from scratch: what systemd would give it, and nothing of the supervisor's own.

Later ones win: the basics, the user's, ours, `Environment=`, `EnvironmentFile=`.
"""

from collections.abc import Mapping
from pathlib import Path

from core.errors import ConfigError
from units.embedded.identity import Identity
from units.embedded.parse import CREDENTIALS_SPECIFIER, EmbeddedUnit
from units.words import split_words

_BLANKS = " \t\r"
_BASICS = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8"}


class EnvironmentFileMissing(ConfigError):
    """An `EnvironmentFile=` without a leading `-` that cannot be read."""

    code = "environment_file_unreadable"


def build_environment(unit: EmbeddedUnit, identity: Identity | None, own: Mapping[str, str]) -> dict[str, str]:
    """The variables of one start. `own` is what the supervisor tells the service (NOTIFY_SOCKET, …).

    Raises: EnvironmentFileMissing.
    """
    env = dict(_BASICS)
    if identity is not None and identity.name:
        env |= {"USER": identity.name, "LOGNAME": identity.name, "HOME": identity.home, "SHELL": identity.shell}
    env |= own
    specifiers = {CREDENTIALS_SPECIFIER: own.get("CREDENTIALS_DIRECTORY", "")}
    for line in unit.environment:
        for word in split_words(line, None, specifiers):
            name, equals, value = word.partition("=")
            if equals:
                env[name] = value
    for path in unit.environment_files:
        env |= _read_environment_file(path)
    return env


def _read_environment_file(path: str) -> dict[str, str]:
    try:
        return parse_environment_file(Path(path.removeprefix("-")).read_text(errors="replace"))
    except OSError as error:
        if path.startswith("-"):
            return {}
        raise EnvironmentFileMissing(f"{path}: {error.strerror}") from error


def parse_environment_file(text: str) -> dict[str, str]:
    """`NAME=value` lines with a shell's quotes, but neither variables nor commands (systemd.exec(5))."""
    env: dict[str, str] = {}
    for raw in _logical_lines(text):
        line = raw.strip(_BLANKS)
        name, equals, value = line.partition("=")
        if equals and line[0] not in "#;":
            env[name.strip(_BLANKS)] = _unquote(value.strip(_BLANKS))
    return env


def _logical_lines(text: str) -> list[str]:
    """Lines, with those joined that a quote or a backslash at the end holds together."""
    lines: list[str] = []
    current, quote, escaped = "", "", False
    for char in text:
        if char == "\n" and not quote:
            if escaped:
                current = current[:-1]
            else:
                lines.append(current)
                current = ""
            escaped = False
            continue
        current += char
        is_comment = current.lstrip()[:1] in ("#", ";")
        if char in "\"'" and not escaped and not is_comment:
            quote = "" if quote == char else quote or char
        escaped = char == "\\" and not escaped and quote != "'"
    return [*lines, current]


def _unquote(value: str) -> str:
    """Quotes removed; a backslash keeps the next character, inside double quotes only where it means something."""
    out, quote, at = "", "", 0
    while at < len(value):
        char = value[at]
        following = value[at + 1 : at + 2]
        at += 1
        if quote != "'" and char == "\\" and following and (not quote or following in '"\\`$\n'):
            out += "" if following == "\n" else following
            at += 1
        elif char == quote:
            quote = ""
        elif char in "\"'" and not quote:
            quote = char
        else:
            out += char
    return out
