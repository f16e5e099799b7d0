"""`llmgw config`: check the file without touching anything, and show what the program makes of it."""

import asyncio
import socket
import sys

import click
import msgspec
from ruamel.yaml import YAML

from cli.masking import leaves, mask
from cli.output import encode, say, show_json, show_table, visible
from cli.reload import describe
from cli.session import Session, pass_session, shared_options
from core.api import ReloadResult
from core.config.idle import find_idle
from core.config.load import Loaded, load_config
from core.config.problem import ConfigErrors
from core.config.schema import Config
from engines.judge import judge_runtimes


@click.group()
def config() -> None:
    """Check and show the config file."""


@config.command("check")
@shared_options
@pass_session
def config_check(session: Session) -> None:
    """Name everything that is wrong with the config, all at once, each with its path in the file.

    What is in order and has no effect is named as a warning.
    """
    try:
        loaded = load_checked(session)
    except ConfigErrors as error:
        error.hint = ""  # it names this very command
        raise
    warnings = [str(problem) for problem in find_idle(loaded.config, socket.gethostname())]
    if session.json:
        show_json({"ok": True, "path": str(loaded.path), "warnings": warnings})
        return
    say(f"{loaded.path}: fine, {_count(loaded.config)}")
    for warning in warnings:
        say(f"warning: {warning}")


@config.command("show")
@click.option("--origin", is_flag=True, help="Say for every value where it comes from.")
@shared_options
@pass_session
def config_show(session: Session, origin: bool) -> None:
    """Show the config with every default filled in. Secrets are shown as `…`."""
    loaded = load_checked(session)
    shown = mask(msgspec.to_builtins(loaded.config), loaded.references)
    if origin:
        _show_origin(session, loaded, shown)
    elif session.json:
        show_json({"path": str(loaded.path), "config": shown})
    else:
        YAML().dump(shown, sys.stdout)


@config.command("diff")
@shared_options
@pass_session
def config_diff(session: Session) -> None:
    """Show what `llmgw reload` would start, restart and stop, by the file as it is now. Changes nothing."""

    async def plan() -> ReloadResult:
        async with session.daemon() as daemon:
            return await daemon.plan_reload()

    result = asyncio.run(plan())
    if session.json:
        show_json(result)
        return
    for line in describe(result, would=True):
        say(line)


def load_checked(session: Session) -> Loaded:
    """The config, judged by what the daemon would judge as well: engines, their arguments and environment.

    Raises: ConfigMissing, ConfigErrors.
    """
    loaded = load_config(session.layout, session.environment())
    problems = judge_runtimes(loaded.config)
    if problems:
        raise ConfigErrors(str(loaded.path), problems)
    return loaded


def _show_origin(session: Session, loaded: Loaded, shown: object) -> None:
    rows = [(path, value, origin_of(path, loaded)) for path, value in leaves(shown)]
    if session.json:
        show_json(
            {"path": str(loaded.path), "values": [{"path": p, "value": v, "origin": o} for p, v, o in rows]},
        )
    else:
        show_table(("PATH", "VALUE", "FROM"), [(p, visible(encode(v)), o) for p, v, o in rows])


def origin_of(path: str, loaded: Loaded) -> str:
    """`default`, `file`, or `file: ${NAME}` for a value that the environment fills in."""
    names = loaded.references.get(path, ())
    if names:
        return "file: " + " ".join(f"${{{name}}}" for name in names)
    whole = _folded(path.partition("[")[0])
    given = any(key == whole or key.startswith(f"{whole}.") for key in map(_folded, loaded.given))
    return "file" if given else "default"


def _folded(path: str) -> str:
    """A key path that is the same for `keepWarm` and `keep_warm`, which a file may use as well."""
    return path.replace("_", "").lower()


def _count(config: Config) -> str:
    counts = {"model": len(config.models), "runtime": len(config.runtimes)}
    return ", ".join(f"{count} {noun}" if count == 1 else f"{count} {noun}s" for noun, count in counts.items())
