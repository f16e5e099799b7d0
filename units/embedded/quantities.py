"""Durations, sizes and resource limits as systemd writes them. Pure; each parser raises `ValueError`."""

import math
import re
import resource
from dataclasses import dataclass

_SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Zµ]*)")
_UNIT_S = {
    **dict.fromkeys(("us", "usec", "µs"), 1e-6),
    **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604800.0),
}
_FACTOR = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)")


@dataclass(frozen=True, slots=True)
class Limit:
    """A resource limit; `resource.RLIM_INFINITY` where there is none."""

    soft: int
    hard: int


def parse_seconds(text: str) -> float:
    """`5`, `1min 30s`, `500ms`, `infinity`."""
    text = text.strip()
    if text == "infinity":
        return math.inf
    if not text:
        raise ValueError("an empty duration")
    total, at = 0.0, 0
    while at < len(text):
        found = _SPAN.match(text, at)
        if found is None or found[2] not in _UNIT_S:
            raise ValueError(f"no duration: {text!r}")
        total += float(found[1]) * _UNIT_S[found[2]]
        at = found.end()
    return total


def parse_timeout(text: str) -> float:
    """A duration in which 0 means that there is no limit, as in `TimeoutStartSec=`."""
    return parse_seconds(text) or math.inf


def parse_bytes(text: str) -> int:
    """`1024`, `4G`, `1.5M`, `infinity` (-1). A percentage is refused: it depends on the machine."""
    if text == "infinity":
        return -1
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"no size: {text!r}")
    return int(float(found[1]) * _FACTOR[found[2]]) if "." in found[1] else int(found[1]) * _FACTOR[found[2]]


def parse_limit(text: str) -> Limit:
    """`1024`, `1024:4096`, `infinity`."""
    soft, _, hard = text.partition(":")
    values = [resource.RLIM_INFINITY if part == "infinity" else parse_bytes(part) for part in (soft, hard or soft)]
    return Limit(values[0], values[1])
