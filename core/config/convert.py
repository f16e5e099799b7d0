"""A parsed document -> typed `Config`, section by section, so that all errors are found at once.

msgspec stops at the first error of a value. Converting each section by itself, those inside of sections too, and in
each every field by itself, finds the rest. Keys are accepted in camelCase and snake_case.
"""

import difflib
import re
import typing
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from core.config.backend import Backend
from core.config.expand import join
from core.config.problem import Problem
from core.config.schema import Config, Model, Runtime
from core.config.section import Section

S = TypeVar("S", bound=Section)

_PER_ENTRY: dict[str, type[Section]] = {"runtimes": Runtime, "backends": Backend, "models": Model}
"""Sections that hold many values of one type, converted one by one."""


def convert(document: object) -> tuple[Config, list[Problem]]:
    """The config that the document describes, and everything that is wrong with it (then the config is partial)."""
    if document is None:
        return Config(), []
    if not isinstance(document, Mapping):
        return Config(), [Problem("", f"expected sections, found {_kind(document)}")]
    problems: list[Problem] = []
    known = {field.encode_name: field for field in msgspec.structs.fields(Config)}
    sections: dict[str, object] = {}
    for key, value in document.items():
        name = camel(str(key))
        if name not in known:
            problems.append(_unknown(str(key), str(key), known))
            continue
        sections[known[name].name] = _section(name, known[name].type, value, problems)
    good = {name: value for name, value in sections.items() if value is not None}
    return msgspec.structs.replace(Config(), **good), problems


def _section(name: str, kind: object, value: object, problems: list[Problem]) -> object | None:
    if value is None:
        return None  # `runtimes:` with nothing below it is an empty section
    if name in _PER_ENTRY:
        return _entries(name, _PER_ENTRY[name], value, problems)
    if isinstance(kind, type) and issubclass(kind, Section):
        return convert_struct(kind, value, name, problems)
    try:
        converted: object = msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        problems.append(_problem(name, error))
        return None
    return converted


def _entries(name: str, kind: type[S], value: object, problems: list[Problem]) -> object:
    if kind is Model:
        if not isinstance(value, list):
            problems.append(Problem(name, f"expected a list, found {_kind(value)}"))
            return None
        models = [convert_struct(kind, item, f"{name}[{index}]", problems) for index, item in enumerate(value)]
        return [model for model in models if model is not None]
    if not isinstance(value, Mapping):
        problems.append(Problem(name, f"expected names with settings below them, found {_kind(value)}"))
        return None
    converted = {str(key): convert_struct(kind, item, join(name, str(key)), problems) for key, item in value.items()}
    return {key: item for key, item in converted.items() if item is not None}


def convert_struct(kind: type[S], value: object, path: str, problems: list[Problem]) -> S | None:
    """One struct; on failure every field is tried alone so that each gets its own problem."""
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"expected settings, found {_kind(value)}"))
        return None
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    renamed: dict[str, object] = {}
    before = len(problems)
    for key, item in value.items():
        name = camel(str(key))
        if name not in fields:
            problems.append(_unknown(join(path, str(key)), str(key), fields))
            continue
        told = len(problems)
        renamed[name] = _inner(fields[name].type, item, join(path, name), problems)
        if len(problems) > told:
            continue  # what is wrong inside of it has been said
        try:
            msgspec.convert(renamed[name], fields[name].type, strict=True)
        except msgspec.ValidationError as error:
            problems.append(_problem(join(path, name), error))
    missing = [name for name, field in fields.items() if field.required and name not in renamed]
    problems.extend(Problem(join(path, name), "is missing") for name in missing)
    return msgspec.convert(renamed, kind, strict=True) if len(problems) == before else None


def _inner(kind: object, value: object, path: str, problems: list[Problem]) -> object:
    """The sections inside a section's field, each converted by itself; any other value as it is."""
    if isinstance(kind, type) and issubclass(kind, Section):
        return convert_struct(kind, {} if value is None else value, path, problems)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin not in (dict, list) or (section := _section_of(arguments[-1])) is None:
        return value
    if value is None:
        return origin()
    if origin is dict and isinstance(value, Mapping):
        return {str(key): _inner(section, item, join(path, str(key)), problems) for key, item in value.items()}
    if origin is list and isinstance(value, list):
        # Other things than settings may be allowed beside them; whether they are is judged with the whole list.
        places = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
        return [_inner(section, item, at, problems) if isinstance(item, Mapping) else item for at, item in places]
    return value


def _section_of(kind: object) -> type[Section] | None:
    """The one section that a value of this kind may be; None when there is none."""
    parts = [part for part in (kind, *typing.get_args(kind)) if isinstance(part, type) and issubclass(part, Section)]
    return parts[0] if len(parts) == 1 else None


def camel(key: str) -> str:
    """snake_case -> camelCase; camelCase stays."""
    head, *rest = key.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def _unknown(path: str, key: str, known: Mapping[str, object]) -> Problem:
    near = difflib.get_close_matches(camel(key), known, n=1, cutoff=0.6)
    return Problem(
        path, "unknown key", hint=f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
    )


_AT = re.compile(r" - at `\$?([^`]*)`$")


def _problem(path: str, error: msgspec.ValidationError) -> Problem:
    """msgspec's message, with the place inside the value moved into the path."""
    text = str(error)
    inside = ""
    if match := _AT.search(text):
        inside = match[1].replace("[...]", "[…]")
        text = text[: match.start()]
    text = text.replace("`", "").replace("Expected", "expected", 1).replace("got", "found", 1)
    return Problem(path + inside, text[:1].lower() + text[1:])


def _kind(value: object) -> str:
    names = {str: "text", bool: "yes/no", int: "a number", float: "a number", list: "a list", type(None): "nothing"}
    return names.get(type(value), "settings" if isinstance(value, Mapping) else type(value).__name__)
