"""Structured logging: one constant `snake_case` event per line, facts as keys with units.

    log = get_logger("daemon.apply")
    log.info("runtime_started", runtime="qwen", pid=4711, took_s=12.5)

writes `runtime_started runtime=qwen pid=4711 took_s=12.5` to stderr, with journald's priority prefix when the
journal reads it. Values are escaped onto one line: nobody can forge a second line from outside. Secrets print `…`.
"""

import json
import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import TextIO


class Level(IntEnum):
    """journald's priorities."""

    ERROR = 3
    WARNING = 4
    INFO = 6
    DEBUG = 7


class _Sink:
    """Where lines go; one per process, set once by `configure`."""

    def __init__(self) -> None:
        self.stream: TextIO = sys.stderr
        self.level = Level.INFO
        self.prefix = False
        self.program = ""

    def write(self, level: Level, *lines: str) -> None:
        lead = f"<{int(level)}>" if self.prefix else f"{level.name.lower():7} "
        try:
            self.stream.write("".join(f"{lead}{line}\n" for line in lines))
            self.stream.flush()
        except (OSError, ValueError):
            pass  # a closed or full stderr must not end the program


_sink = _Sink()


def configure(program: str, level: str = "info", stream: TextIO | None = None) -> None:
    """Set level and stream of this process. Called once, by a program's composition root."""
    _sink.program = program
    _sink.level = Level[level.upper()]
    _sink.stream = stream if stream is not None else sys.stderr
    _sink.prefix = "JOURNAL_STREAM" in os.environ


def set_level(level: str) -> None:
    """Change the level while running (config reload)."""
    _sink.level = Level[level.upper()]


def format_value(value: object) -> str:
    """A value as it stands in a log line: bare when simple, JSON-quoted when it has spaces or control characters."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    if text and text.isprintable() and not any(c in text for c in ' "='):
        return text
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else json.dumps(text)


class EventLogger:
    """A logger with bound facts. Cheap to make; immutable."""

    __slots__ = ("_bound", "name")

    def __init__(self, name: str, bound: str = "") -> None:
        self.name = name
        self._bound = bound

    def bind(self, **facts: object) -> "EventLogger":
        """A logger whose lines all carry these facts too."""
        return EventLogger(self.name, self._bound + "".join(f" {k}={format_value(v)}" for k, v in facts.items()))

    def enabled(self, level: Level) -> bool:
        return level <= _sink.level

    def debug(self, event: str, **facts: object) -> None:
        self._emit(Level.DEBUG, event, facts)

    def info(self, event: str, **facts: object) -> None:
        self._emit(Level.INFO, event, facts)

    def warning(self, event: str, **facts: object) -> None:
        self._emit(Level.WARNING, event, facts)

    def error(self, event: str, **facts: object) -> None:
        self._emit(Level.ERROR, event, facts)

    def info_lines(self, lines: Sequence[str]) -> None:
        """Whole lines that the caller has formatted (and quoted), in one write: for what is logged per request."""
        if _sink.level >= Level.INFO:
            _sink.write(Level.INFO, *lines)

    def _emit(self, level: Level, event: str, facts: dict[str, object]) -> None:
        if level > _sink.level:
            return
        rest = "".join(f" {key}={format_value(value)}" for key, value in facts.items())
        _sink.write(level, f"{event}{self._bound}{rest}")


def get_logger(name: str) -> EventLogger:
    """A logger for one module."""
    return EventLogger(name)
