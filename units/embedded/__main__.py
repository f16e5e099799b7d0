"""`python -m units.embedded --state DIR`: the embedded supervisor as a program.

It runs on plain asyncio. uvloop works with pidfds too (tried), but nothing here is worth its start-up time and memory,
and this process forks without executing at once, where fewer moving parts are better.

SIGTERM and SIGINT end the supervisor and leave the services running: the next one adopts them. The control request
`shutdown` stops them first. A second supervisor for the same directory is refused.
"""

import argparse
import asyncio
import os
import resource
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from core.errors import ConflictError, LlmgwError
from core.files import ensure_directory, lock_file
from core.log import EventLogger, configure, get_logger
from core.notify import Notifier
from core.paths import Layout
from units.embedded.app import serve
from units.embedded.cgroup import open_root
from units.embedded.procfs import read_boot_id
from units.embedded.quantities import Limit
from units.embedded.shared import open_shared
from units.embedded.site import Site, short_name
from units.embedded.spawn import become_subreaper

_LOCK_PATIENCE_S = 3.0
"""A child that a killed supervisor left between fork and exec holds the lock for some milliseconds more."""


def main() -> int:
    options = _parse_options()
    configure("supervisor", options.log_level)
    log = get_logger("units.embedded")
    try:
        layout = Layout.under(options.state)
        with ExitStack() as held:
            _prepare_directories(layout)
            _lock(held, layout.supervisor_state / "lock")
            _prepare_process()
            shared = held.enter_context(open_shared(layout.supervisor_state))
            site = _make_site(layout, shared, log, use_cgroups=not options.no_cgroups)
            asyncio.run(serve(site, Notifier.from_environment(os.environ)))
    except LlmgwError as error:
        log.error("supervisor_failed", code=error.code, error=error.message, hint=error.hint)
        return error.exit_code
    return 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m units.embedded", description="Run llmgw's units without systemd.")
    parser.add_argument("--state", type=Path, required=True, help="the directory below which everything lies")
    parser.add_argument(
        "--no-cgroups", action="store_true", help="find processes by their mark, even where cgroups work"
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    return parser.parse_args()


def _prepare_directories(layout: Layout) -> None:
    ensure_directory(layout.supervisor_state, mode=0o700)
    ensure_directory(layout.units, mode=0o755)
    ensure_directory(layout.logs, mode=0o750)


def _lock(held: ExitStack, path: Path) -> None:
    """Hold the lock until `held` is closed. Raises: ConflictError."""
    give_up_s = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            held.enter_context(lock_file(path))
            return
        except ConflictError:
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.05)


def _prepare_process() -> None:
    """What our services must not inherit, and must not leave to init."""
    os.umask(0o022)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                continue  # the listing's own descriptor
    become_subreaper()


def _make_site(layout: Layout, shared: Path, log: EventLogger, *, use_cgroups: bool) -> Site:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return Site(
        units=layout.units,
        state=layout.supervisor_state,
        logs=layout.logs,
        boot_id=read_boot_id(),
        cgroups=open_root(layout.supervisor_state, short_name(layout.supervisor_state)) if use_cgroups else None,
        shared=shared,
        nofile=Limit(soft, hard),
        log=log,
    )


if __name__ == "__main__":
    sys.exit(main())
