"""How the command speaks: data on stdout, all else on stderr, colour only on a terminal, `--json` as one object.

The only place that prints. A command hands over a value and how to show it; whether it becomes JSON or a table is
decided here.
"""

import contextlib
import json
import os
import sys
from collections.abc import Sequence

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.config.problem import ConfigErrors
from core.errors import LlmgwError

STATE_STYLES = {
    "running": "green",
    "starting": "yellow",
    "warming": "yellow",
    "queued": "yellow",
    "draining": "yellow",
    "stopping": "yellow",
    "failed": "bold red",
    "out": "bold red",
    "resting": "yellow",
    "ready": "green",
    "disabled": "dim",
    "stopped": "dim",
}
"""Colours of `core.runtime.RuntimeState`, and of the states of backends."""

_WIDTH_WHEN_PIPED = 200


def encode(value: object) -> str:
    """A message or a plain value as the JSON text that `--json` prints."""
    return json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False)


def show_json(value: object) -> None:
    click.echo(encode(value))


def say(text: str = "") -> None:
    """A line of the answer, on stdout. Control characters that came from outside are made visible."""
    click.echo(visible(text))


def show_json_line(value: object) -> None:
    """The same on one line, for a command that goes on: one object per line."""
    click.echo(json.dumps(msgspec.to_builtins(value), ensure_ascii=False))


def note(text: str) -> None:
    """A line about what is going on, on stderr. A reader that went away must not end what is going on."""
    with contextlib.suppress(OSError):
        click.echo(visible(text), err=True)


def visible(text: str) -> str:
    """`text` without anything that could steer a terminal: control characters as escapes, newlines and tabs kept."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def show_error(error: LlmgwError, *, as_json: bool) -> None:
    """An error as two lines on stderr (what happened, in more lines where it has several parts), or as JSON."""
    if as_json:
        body: dict[str, object] = {"code": error.code, "message": error.message, "hint": error.hint}
        if isinstance(error, ConfigErrors):
            body["problems"] = [{"path": p.path, "message": p.message, "hint": p.hint} for p in error.problems]
        show_json({"error": body})
        return
    first, *more = visible(error.message).splitlines() or [""]
    lines = [f"{click.style('error:', fg='red', bold=True)} {first}  [{error.code}]", *more]
    if error.hint:
        lines.append(f"{click.style('hint:', fg='cyan', bold=True)} {visible(error.hint)}")
    # None lets click decide by the terminal; it knows nothing of no-color.org.
    click.echo("\n".join(lines), err=True, color=False if os.environ.get("NO_COLOR") else None)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns without frames, as `systemctl` and `ip` do; cells of a `STATE` column are coloured."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in columns:
        table.add_column(name, no_wrap=name in ("ID", "STATE"), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(name, visible(text)) for name, text in zip(columns, row, strict=True)))
    console = Console(file=sys.stdout, highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = _WIDTH_WHEN_PIPED
    console.print(table)


def _cell(column: str, text: str) -> Text:
    return Text(text, style=STATE_STYLES.get(text, "") if column == "STATE" else "")
