"""The command's composition root: the group of all commands, and the one place where errors become exit codes.

Exit codes are the table in `core/errors.py` (and `llmgw-errors(7)`): 0 done, 2 usage, 3 configuration, …; 130 when
a person pressed Ctrl-C. No traceback reaches a person unless `LLMGW_DEBUG` is set.
"""

import contextlib
import os
import sys
from collections.abc import Sequence

import click

from cli.backends import backends
from cli.cluster import cluster
from cli.config import config
from cli.doctor import doctor
from cli.engine import engine
from cli.engine_check import engine_check
from cli.engine_mirror import mirror
from cli.firewall import firewall
from cli.hardware import hardware
from cli.init import init
from cli.key import key
from cli.logs import logs
from cli.model import model
from cli.output import show_error
from cli.plan import runtime_admit, runtime_plan, runtime_warmup
from cli.reload import reload
from cli.runtimes import runtime_restart, runtime_start, runtime_stop, runtimes
from cli.service import service
from cli.serving import start, stop
from cli.session import shared_options
from cli.status import status
from cli.up import up
from cli.usage import usage
from cli.weights import weights
from cli.wipe import wipe
from core import VERSION
from core.errors import BugError, LlmgwError, UsageError

INTERRUPTED = 130


class _InOrder(click.Group):
    """Lists commands as they were added: what comes first for a person stands first."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="llmgw", message="%(prog)s %(version)s")
@shared_options
def llmgw() -> None:
    """Serve models on this machine: OpenAI's API in front, ordinary services behind.

    `llmgw up` runs everything in the foreground. Where the package is installed, systemd runs it: see
    `systemctl status llmgw.target`.
    """


for _command in (
    *(up, init, model, status, backends, runtimes, runtime_start, runtime_stop, runtime_restart),
    *(runtime_plan, runtime_admit, runtime_warmup),
    *(logs, key, usage, engine, engine_check, weights, hardware, doctor, firewall, cluster),
    *(reload, config, stop, start, wipe, service),
):
    llmgw.add_command(_command)


engine.add_command(mirror)


@llmgw.group(hidden=True)
def ctl() -> None:
    """Commands under the name that other tools' users look for."""


ctl.add_command(engine_check)


def main(arguments: Sequence[str]) -> int:
    """Run one command. Returns the exit code; prints every error once, in the form that was asked for."""
    try:
        return llmgw.main(args=list(arguments), prog_name="llmgw", standalone_mode=False) or 0
    except LlmgwError as error:
        return _fail(error, arguments)
    except click.Abort:
        return _interrupted()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return UsageError.exit_code
    except click.ClickException as error:
        return _fail(_usage(error), arguments)
    except BrokenPipeError:
        _discard_stdout()
        return 0
    except KeyboardInterrupt:
        return _interrupted()
    except Exception as error:  # noqa: BLE001 - main: the last boundary before a person
        if os.environ.get("LLMGW_DEBUG"):
            raise
        return _fail(
            BugError(
                f"{type(error).__name__}: {error}",
                hint="this is a fault of llmgw; LLMGW_DEBUG=1 shows where: please report it",
            ),
            arguments,
        )


def _fail(error: LlmgwError, arguments: Sequence[str]) -> int:
    with contextlib.suppress(BrokenPipeError):
        show_error(error, as_json="--json" in arguments)
    return error.exit_code


def _usage(error: click.ClickException) -> UsageError:
    """A complaint of click's in our words, with the way to the help of the command concerned."""
    context = getattr(error, "ctx", None)
    path = context.command_path if isinstance(context, click.Context) else "llmgw"
    return UsageError(error.format_message().rstrip("."), hint=f"{path} --help")


def _interrupted() -> int:
    sys.stderr.write("\n")
    return INTERRUPTED


def _discard_stdout() -> None:
    """The reader went away (`llmgw … | head`): keep Python from complaining when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
