"""The click command `llmgw up`: options, where the state lies, and what is printed once it serves."""

import asyncio
import contextlib
import os
import shutil
import sys
from pathlib import Path

import click

from cli.adding import Place
from cli.addition import Request
from cli.asking import curl_line, kind_of, needs_key
from cli.output import note, say, show_json
from cli.session import Session, default_state, pass_session, shared_options
from cli.up.bring_up import Serving
from cli.up.foreground import Foreground
from cli.up.prepare import as_storage_error, make_folders
from cli.wish import Wish, resolve
from core.config.load import ConfigMissing
from core.config.schema import Config
from core.paths import Layout

STARTER = "smollm2-135m"
"""The preset that a first `up` serves: small, and from the package index alone."""


@click.command(short_help="Run everything in the foreground.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the gateway. Default: the config's, first 8100.")
@click.option("--model", "source", metavar="SOURCE", default="", help=f"Preset, path or source. First: {STARTER}.")
@shared_options
@pass_session
def up(session: Session, port: int | None, source: str) -> None:
    """Run everything in the foreground, for a machine without systemd; any user may.

    The first time, it writes a config, installs an engine and a small model, and starts them; later it serves what
    the config says. It prints where to reach it once a first real answer came. Ctrl-C stops everything.
    """
    # One spelling of the path, whatever links lead there: leftovers are found by it.
    root = Path(session.state or os.environ.get("LLMGW_STATE") or default_state()).resolve()
    session.state = str(root)
    place = Place(session.layout, session.environment())
    make_folders(root, place.layout)
    request = _request(place, source)
    foreground = Foreground(root, place, port=port, request=request)

    def on_serving(serving: Serving, took_s: float) -> None:
        # Who only wanted to see the first line (`llmgw up | head -1`) still wants it to serve.
        with contextlib.suppress(BrokenPipeError):
            _tell(session, place, serving, took_s)

    try:
        asyncio.run(foreground.run(on_serving))
    except OSError as error:
        raise as_storage_error(root, error) from error


def _request(place: Place, source: str) -> Request | None:
    """What to add: the model that was asked for; the starter where the config has no model yet."""
    if source:
        return resolve(Wish(source))
    try:
        config = place.load().config
    except ConfigMissing:
        return resolve(Wish(STARTER))
    return resolve(Wish(STARTER)) if not config.models and not config.runtimes else None


def _tell(session: Session, place: Place, serving: Serving, took_s: float) -> None:
    if session.json:
        show_json(
            {
                "url": serving.url,
                "model": serving.model_id,
                "models": list(serving.models),
                "on": serving.on,
                "answer": serving.answer,
                "tookS": round(took_s, 3),
                "state": session.state,
                "pid": os.getpid(),
            }
        )
    else:
        for line in describe(serving, place.load().config, place.layout, session.state, took_s):
            say(line)
    note("Ctrl-C stops everything")


def describe(serving: Serving, config: Config, layout: Layout, state: str, took_s: float) -> list[str]:
    """What a person reads once it serves."""
    lines = [f"llmgw serves at {serving.url}  (ready after {took_s:.1f} s)"]
    if serving.model_id:
        with_key = needs_key(config)
        if serving.answer:
            lines.append(f"{serving.model_id}, on {serving.on or 'this machine'}, says: {serving.answer}")
        kind = kind_of(config, serving.model_id)
        lines += ["", "  " + curl_line(serving.url, serving.model_id, with_key=with_key, kind=kind), ""]
        lines.append(f"  key     {_describe_key(config, layout) if with_key else 'none is asked on this machine'}")
    lines += [
        f"  models  {', '.join(serving.models) or 'none yet: llmgw model add'}",
        f"  state   {state} (config, log/)",
    ]
    lines.append(f"  look    {_called()} status --state {state}")
    return lines


def _called() -> str:
    """How a person calls this command here: `llmgw` where PATH has it, in a checkout by its path."""
    program = Path(sys.argv[0])
    return "llmgw" if program.name != "llmgw" or shutil.which("llmgw") else os.path.relpath(program)


def _describe_key(config: Config, layout: Layout) -> str:
    if config.security.api_keys or config.security.admin_api_keys:
        return f"LLMGW_KEY=one of security.apiKeys in {layout.config}"
    return "LLMGW_KEY=one that llmgw key create made"
