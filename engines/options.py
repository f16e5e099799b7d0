"""Checks `runtimes.<id>.options`, the settings of an engine's adapter, against the adapter's own table. Pure."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

OptionValue = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Option:
    """One setting: its type, and its bounds or its words."""

    kind: type
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    absolute_path: bool = False


def check_options(options: Mapping[str, OptionValue], known: Mapping[str, Option]) -> list[str]:
    """Everything wrong with the options, as sentences."""
    problems = []
    for name, value in options.items():
        rule = known.get(name)
        if rule is None:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(known)) or 'none'}"
            problems.append(f"options.{name[:60]!s} is not an option of this engine{hint}")
        else:
            problem = _judge(value, rule)
            if problem:
                problems.append(f"options.{name} {problem}")
    return problems


def _judge(value: OptionValue, rule: Option) -> str:
    # bool is an int to Python; to an operator it is not.
    fits = isinstance(value, rule.kind) and isinstance(value, bool) == (rule.kind is bool)
    if not fits and not (rule.kind is float and type(value) is int):
        return f"must be a {_WORDS[rule.kind]}"
    if isinstance(value, str):
        return _judge_text(value, rule)
    if rule.minimum is not None and value < rule.minimum:
        return f"must be at least {rule.minimum:g}"
    if rule.maximum is not None and value > rule.maximum:
        return f"must be at most {rule.maximum:g}"
    return ""


def _judge_text(value: str, rule: Option) -> str:
    if rule.choices and value not in rule.choices:
        return f"must be one of {', '.join(rule.choices)}"
    if not value.isprintable():
        return "must be printable text"
    if rule.absolute_path and not value.startswith("/"):
        return "must be an absolute path"
    return ""


_WORDS = {str: "text", int: "whole number", float: "number", bool: "truth value"}
