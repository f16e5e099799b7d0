"""The man pages say what the code does: config keys with their defaults, commands with options, exit codes."""

import re
import typing
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from cli.app import INTERRUPTED, llmgw
from core.config.schema import Config
from core.config.section import Section
from core.errors import BY_STATUS

MANUAL = Path(__file__).resolve().parents[3] / "docs/man"


def page(name: str) -> str:
    return (MANUAL / name).read_text("utf-8")


def keys(section: type[Section], path: str = "") -> Iterator[tuple[str, object]]:
    """Every key that a config may have, as the manual writes it, with its default."""
    for field in msgspec.structs.fields(section):
        name = f"{path}{field.encode_name}"
        inner = [kind for kind in _types(field.type) if isinstance(kind, type) and issubclass(kind, Section)]
        if not inner or bool in _types(field.type):  # `true`, or settings of one's own
            yield name, _default(field)
        if not inner:
            continue
        if typing.get_origin(field.type) is list:
            yield from keys(inner[0], f"{name}[].")
        elif typing.get_origin(field.type) is dict:
            yield from keys(inner[0], f"{name}.ID.")
        else:
            yield from keys(inner[0], f"{name}.")


def _types(kind: object) -> tuple[object, ...]:
    return (kind, *typing.get_args(kind))


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


KEYS = list(keys(Config))


def test_the_schema_was_walked_to_its_ends() -> None:
    names = {name for name, _ in KEYS}

    assert {"server.host", "models[].id", "runtimes.ID.engine", "aliases", "ports.backends"} <= names


@pytest.mark.parametrize(("key", "default"), KEYS, ids=[key for key, _ in KEYS])
def test_every_config_key_is_documented_with_its_default(key: str, default: object) -> None:
    entry = re.search(rf"^\*\*{re.escape(key)}\*\*(?: \(default(:?) (.*)\))?$", page("llmgw-config.5.md"), re.MULTILINE)
    assert entry is not None, f"llmgw-config(5) does not document {key}"

    if isinstance(default, bool | int | str) and default != "":
        shown = str(default).lower() if isinstance(default, bool) else str(default)
        assert (entry[2] or "").startswith(f"`{shown}`"), f"{key}: the default is {shown}"


def test_every_key_in_the_manual_exists() -> None:
    documented = re.findall(r"^\*\*([a-zA-Z\[\]._]+)\*\*(?: \(default|$)", page("llmgw-config.5.md"), re.MULTILINE)

    assert set(documented) - {key for key, _ in KEYS} == set()


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


@pytest.mark.parametrize(("name", "command"), list(commands(llmgw)), ids=lambda value: str(value)[:30])
def test_every_command_has_its_place_in_the_manual_with_its_own_options(name: str, command: click.Command) -> None:
    text = page("llmgw.1.md")
    noun, _, verb = name.partition(" ")
    heading = re.search(rf"^### llmgw {noun} .*{verb}.*$" if verb else rf"^### llmgw {noun}\b.*$", text, re.MULTILINE)
    assert heading is not None, f"llmgw(1) does not describe {name}"

    section = text[heading.start() :].partition("\n### ")[0]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name not in ("json", "state", "config"):
            assert any(option in section for option in parameter.opts), f"{name}: {parameter.opts} is not described"


def test_every_kind_of_error_is_documented_with_its_exit_code_and_status() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d*) ?\|", page("llmgw-errors.7.md"), re.MULTILINE)

    assert set(rows) == {
        ("0", "200"),
        (str(INTERRUPTED), ""),
        *((str(kind.exit_code), str(kind.http_status)) for kind in BY_STATUS.values()),
    }


def test_every_code_that_the_command_makes_itself_is_documented() -> None:
    text = page("llmgw-errors.7.md")
    folder = MANUAL.parents[1] / "cli"
    codes = {
        code for file in folder.rglob("*.py") for code in re.findall(r'\bcode ?= ?"(\w+)"', file.read_text("utf-8"))
    }

    assert {code for code in codes if f"**{code}**" not in text} == set()
