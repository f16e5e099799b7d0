"""What one invocation of `llmgw` was told: where things lie and how to answer.

The options `--state`, `--config` and `--json` exist on the program and on every command, so that they work wherever
a person writes them. Each command takes the `Session` (`click.make_pass_decorator`) and asks it for the layout or
for a client of the daemon.
"""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click

from core.client import DaemonClient, DaemonUnavailable
from core.errors import PermissionError_, UnavailableError
from core.paths import Layout

Decorated = TypeVar("Decorated", bound=Callable[..., object])


@dataclass(slots=True)
class Session:
    """The options shared by all commands. Filled while click parses; read afterwards."""

    json: bool = False
    state: str = ""
    config: str = ""

    def environment(self) -> dict[str, str]:
        """Our environment with the options in it: what child processes of ours must see, too."""
        environ = dict(os.environ)
        if self.state:
            environ["LLMGW_STATE"] = str(Path(self.state).absolute())
        elif not environ.get("LLMGW_STATE") and is_only_up_here():
            environ["LLMGW_STATE"] = str(default_state())
        if self.config:
            environ["LLMGW_CONFIG"] = str(Path(self.config).absolute())
        return environ

    @property
    def layout(self) -> Layout:
        return Layout.from_environment(self.environment())

    @asynccontextmanager
    async def daemon(self) -> AsyncIterator[DaemonClient]:
        """A client of this machine's daemon.

        Raises: what `check_socket` raises, before anything is sent; `daemon_not_running` also when the daemon went
        away and left its socket behind.
        """
        layout = self.layout
        check_socket(layout, self.environment())
        try:
            async with DaemonClient(layout.daemon_socket) as client:
                yield client
        except DaemonUnavailable as error:
            raise not_running(self.environment()) from error


pass_session = click.make_pass_decorator(Session, ensure=True)


def shared_options(command: Decorated) -> Decorated:
    """Add `--json`, `--state` and `--config` to a command."""
    for option in (
        click.option("--config", metavar="PATH", callback=_keep("config"), expose_value=False, help="Config file."),
        click.option(
            "--state",
            metavar="DIR",
            callback=_keep("state"),
            expose_value=False,
            help="Everything below this directory, instead of the system's folders.",
        ),
        click.option(
            "--json", is_flag=True, callback=_keep("json"), expose_value=False, help="Answer with one JSON object."
        ),
    ):
        command = option(command)
    return command


def _keep(name: str) -> Callable[[click.Context, click.Parameter, object], None]:
    """A callback that stores a given option in the session; one that was not given changes nothing."""

    def callback(context: click.Context, _parameter: click.Parameter, value: object) -> None:
        if value:
            setattr(context.ensure_object(Session), name, value)

    return callback


def default_state() -> Path:
    """Where `llmgw up` keeps everything when it is not told: the user's state folder of the XDG specification."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local/state") / "llmgw"


def is_only_up_here() -> bool:
    """Whether this user has run `llmgw up` and the package's own service is not installed."""
    return not Layout.system().config.parent.exists() and (default_state() / "config.yaml").exists()


def check_socket(layout: Layout, environ: Mapping[str, str]) -> None:
    """Say what a person must do when the daemon's socket is not there or not ours to use.

    Raises: UnavailableError (`daemon_not_running`), PermissionError_ (`socket_permission`).
    """
    socket = layout.daemon_socket
    try:
        exists = socket.exists()
    except PermissionError:
        exists, allowed = True, False
    else:
        allowed = os.access(socket, os.W_OK)
    if not exists:
        raise not_running(environ)
    if not allowed:
        raise PermissionError_(
            f"you may not use the daemon's socket {socket}",
            hint="use sudo, or join the group: sudo adduser $USER llmgw-admin, then log in again",
            code="socket_permission",
        )


def not_running(environ: Mapping[str, str]) -> UnavailableError:
    """The daemon is not there, with the hint that fits how it is run here."""
    state = environ.get("LLMGW_STATE")
    if state:
        hint = f"llmgw up --state {state}"
    elif Path("/run/systemd/system").is_dir():
        hint = "systemctl start llmgw.target"
    else:
        hint = "llmgw up, or --state DIR when it already runs there"
    return UnavailableError("the llmgw daemon is not running", hint=hint, code="daemon_not_running")
