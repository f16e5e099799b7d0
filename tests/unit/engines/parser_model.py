"""What an engine's own parser makes of a command line, modelled from its recorded help.

Python's argparse itself reads the words (vLLM and SGLang use it), with the flags of the help; vLLM's own steps before
it (underscores, `--flag.key value`, `-O3`) are done as its `FlexibleArgumentParser` does them.
"""

import argparse
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

from engines.help import parse_help

DATA = Path(__file__).parents[2] / "data/engines"
HELPS = {"vllm": DATA / "vllm-0.32.0-help.txt", "sglang": DATA / "sglang-0.5.23-help.txt"}


class Rejected(Exception):
    """The engine would refuse the command line and end: nothing was smuggled past anybody."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Rejected(message)


def flags_seen(engine: str, words: Sequence[str]) -> set[str]:
    """The flags that the engine would see, by their first name, or by that of a `--no-` twin. Raises: Rejected."""
    parser, seen = _build(engine)
    seen.clear()
    try:
        parser.parse_args(_prepare_vllm(words) if engine == "vllm" else list(words))
    except (IndexError, ValueError) as error:
        raise Rejected(str(error)) from error
    return set(seen)


@cache
def names_of(engine: str) -> dict[str, tuple[str, ...]]:
    """Every spelling -> all names of the same flag."""
    return {name: flag.names for flag in parse_help(HELPS[engine].read_text()).flags for name in flag.names}


@cache
def _build(engine: str) -> tuple[_Parser, set[str]]:
    seen: set[str] = set()

    class Note(argparse.Action):
        def __call__(self, parser: object, namespace: object, values: object, option_string: str | None = None) -> None:
            # A switch is turned off by its `--no-` twin: that is another flag than the switch.
            name = option_string or ""
            seen.add(name if name.startswith("--no-") else self.option_strings[0])

    parser = _Parser(add_help=False)
    taken: set[str] = set()
    for number, flag in enumerate(parse_help(HELPS[engine].read_text()).flags):
        names = [name for name in flag.names if name not in taken]
        taken.update(names)
        if names:
            nargs: int | str | None = {"0": 0, "1": None}.get(flag.arity, flag.arity)
            parser.add_argument(*names, dest=f"d{number}", action=Note, nargs=nargs)
    if engine == "vllm":
        parser.add_argument("model_tag", nargs="?")
    return parser, seen


def _prepare_vllm(words: Sequence[str]) -> list[str]:
    key_of = re.compile(r"(?<=--)[^\.]*")
    args: list[str] = []
    for at, word in enumerate(words):
        if word.startswith("--"):
            key, equals, value = word.partition("=")
            args.append(key_of.sub(lambda found: found.group(0).replace("_", "-"), key, count=1) + equals + value)
        elif word.startswith("-O") and word != "-O":
            args += ["--optimization-level", word[3:] if word[2] == "=" else word[2:]]
        elif word == "-O" and words[at + 1 : at + 2] and words[at + 1] in {"0", "1", "2", "3"}:
            args.append("--optimization-level")
        else:
            args.append(word)
    kept: list[str] = []
    dotted: dict[str, str] = {}
    skip = False
    for at, word in enumerate(args):
        if skip:
            skip = False
            continue
        if word.startswith("-") and "." in word.partition("=")[0]:
            key, equals, value = word.partition("=")
            if not equals:
                value, skip = args[at + 1], True
            dotted[key.split(".")[0]] = json.dumps(value)
        else:
            kept.append(word)
    return kept + [word for pair in dotted.items() for word in pair]
