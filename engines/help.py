"""Reads the flags out of an engine's own help, as argparse, click and llama.cpp write it. Pure.

Used by engine-check (are the flags that we use still there?) and by the tests of the argument policy (what would the
engine's parser make of a word that we let pass?).
"""

import difflib
import re
from dataclasses import dataclass

_NAME = re.compile(r"(?:^|, )(-{1,2}[A-Za-z?][A-Za-z0-9_.-]*)")
_USAGE_NAME = re.compile(r"(?<![\w-])-{1,2}[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class HelpFlag:
    """One entry of a help text."""

    names: tuple[str, ...]
    arity: str
    """As argparse counts values: `0`, `1`, `?`, `*`, `+`."""


@dataclass(frozen=True, slots=True)
class Help:
    """A whole help text."""

    flags: tuple[HelpFlag, ...]
    cut_short: str = ""
    """Why this cannot be all of it; empty when it looks whole."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for flag in self.flags for name in flag.names)

    def nearest(self, flag: str) -> str:
        """What the flag may be called now; empty when nothing is like it."""
        close = difflib.get_close_matches(flag, sorted(self.names), n=1, cutoff=0.75)
        within = sorted((name for name in self.names if name.endswith(flag.lstrip("-"))), key=len)
        return next(iter((*close, *within)), "")


def parse_help(text: str, *, ends_with: str = "") -> Help:
    """The flags, and whether the text is whole. `ends_with`: words of the last paragraph, where there is one."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text.replace("\r\n", "\n"))
    flags = tuple(flag for line in text.split("\n") if (flag := _read_line(line)) is not None)
    return Help(flags, _cut_short(text, flags, ends_with))


def _read_line(line: str) -> HelpFlag | None:
    indent = len(line) - len(line.lstrip(" "))
    if indent > 4 or not line[indent:].startswith("-"):
        return None
    # Names and values stand before the first wide gap; llama.cpp also aligns the second name with one.
    head = re.split(r"\s{2,}", re.sub(r",\s+", ", ", line.strip()), maxsplit=1)[0]
    names = tuple(dict.fromkeys(_NAME.findall(head)))
    return HelpFlag(names, _arity(head)) if names else None


def _arity(head: str) -> str:
    """From the last name's value: `X`, `[X]`, `[X ...]`, `X [X ...]`."""
    last = _NAME.split(head)[-1].strip()
    if not last:
        return "0"
    if last.endswith("...]"):
        return "*" if last.startswith("[") else "+"
    return "?" if last.startswith("[") and not last.startswith("['") else "1"


def _cut_short(text: str, flags: tuple[HelpFlag, ...], ends_with: str) -> str:
    names = {name for flag in flags for name in flag.names}
    if not flags:
        return "it names no flag at all"
    if "--help" not in names and "-h" not in names:
        return "it does not name --help itself"
    if ends_with and ends_with not in text:
        return f"its end ({ends_with!r}) is missing"
    usage = re.match(r"(?:usage|Usage): .*?(?:\n\n|\Z)", text, re.DOTALL)
    lacking = sorted(set(_USAGE_NAME.findall(usage.group())) - names) if usage else []
    return f"its first lines name {lacking[0]}, and the list below does not" if lacking else ""
