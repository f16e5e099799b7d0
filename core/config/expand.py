"""`${NAME}` references in the config's strings. Pure: values come from the caller, problems go into a list."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from core.config.problem import Problem

_REFERENCE = re.compile(r"\$\{([^}]*)\}|\$\$")
_MAX_NODES = 200_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class TooLarge(ValueError):
    """The document unfolds to more values than any config has."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """What came of expanding one document."""

    value: object
    problems: list[Problem]
    references: dict[str, tuple[str, ...]]
    """Key path -> names of the variables in it, for `config show --origin`."""


def expand(document: object, variables: Mapping[str, str]) -> Expansion:
    """Replace `${NAME}` in every string; `$$` is a literal `$`. An unset name is a problem, never an empty string.

    Raises: TooLarge.
    """
    problems: list[Problem] = []
    references: dict[str, tuple[str, ...]] = {}
    budget = itertools.count()

    def walk(value: object, path: str) -> object:
        if next(budget) > _MAX_NODES:  # YAML aliases can unfold a few lines into billions of values
            raise TooLarge(f"unfolds to more than {_MAX_NODES} values")
        if isinstance(value, str):
            return text(value, path)
        if isinstance(value, Mapping):
            return {key: walk(item, join(path, str(key))) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return value

    def text(value: str, path: str) -> str:
        names: list[str] = []

        def replace(match: re.Match[str]) -> str:
            if match[0] == "$$":
                return "$"
            name = match[1]
            names.append(name)
            if not _NAME.fullmatch(name):
                problems.append(Problem(path, f"${{{name[:40]}}} is not the name of a variable"))
            elif name not in variables:
                problems.append(
                    Problem(
                        path,
                        f"the variable {name} is not set",
                        hint=f"set {name} in the environment or in the environment file, or write $${{{name}}}",
                    )
                )
            return variables.get(name, "")

        expanded = _REFERENCE.sub(replace, value)
        if names:
            references[path] = tuple(names)
        return expanded

    return Expansion(walk(document, ""), problems, references)


def join(path: str, key: str) -> str:
    """`runtimes` + `qwen` -> `runtimes.qwen`."""
    return f"{path}.{key}" if path else key


def parse_environment_file(text: str) -> dict[str, str]:
    """`NAME=value` lines, with comments, optional `export` and optional quotes, as systemd's EnvironmentFile=."""
    result: dict[str, str] = {}
    for line in text.splitlines():
        stripped = line.strip().removeprefix("export ").lstrip()
        name, equals, value = stripped.partition("=")
        if not equals or not _NAME.fullmatch(name.strip()) or stripped.startswith(("#", ";")):
            continue
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        result[name.strip()] = value
    return result
