"""Which programs `llmgw up` runs, and with what. Pure."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.config.schema import Config
from core.paths import Layout

MARK = "LLMGW_UP"
"""Environment variable that every child carries, with the state directory as its value.

It is how a later `up` finds what a killed one left: unlike a list of pids it is never stale, and there is no moment
between a start and its record. Engines do not carry it: units begin with an environment of their own.
"""

SUPERVISOR, DAEMON, GATEWAY = "supervisor", "daemon", "gateway"


@dataclass(frozen=True, slots=True)
class Program:
    """One child of ours."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    log: Path
    pass_fds: tuple[int, ...] = ()


def build_programs(
    layout: Layout, root: Path, config: Config, environ: Mapping[str, str], *, python: str, tree: Path, listener_fd: int
) -> tuple[Program, ...]:
    """Supervisor, daemon, gateway. `root` is the state directory; `tree` is where our packages lie."""
    shared = {
        **environ,
        MARK: str(root),
        "LLMGW_STATE": str(root),
        "PYTHONUNBUFFERED": "1",
        **_python_path(tree, environ),
    }
    # The socket is ours and is handed down: a gateway that is restarted refuses nobody meanwhile.
    bound = {"LLMGW_BIND": f"fd://{listener_fd}", "LLMGW_WORKERS": str(worker_count(config, os.cpu_count() or 1))}

    def program(
        name: str, *arguments: str, extra: Mapping[str, str] | None = None, fds: tuple[int, ...] = ()
    ) -> Program:
        environment = {**shared, **(extra or {})}
        return Program(name, (python, *arguments), environment, tree, layout.logs / f"{name}.log", fds)

    return (
        program(SUPERVISOR, "-m", "units.embedded", "--state", str(root)),
        program(DAEMON, "-m", "daemon"),
        program(
            GATEWAY,
            *("-m", "gunicorn", "-c", str(tree / "packaging/gunicorn.conf.py"), "gateway.app:create_app()"),
            extra=bound,
            fds=(listener_fd,),
        ),
    )


def worker_count(config: Config, cpus: int) -> int:
    """`server.workers`, or one per two cores and at most four."""
    return config.server.workers or max(1, min(4, cpus // 2))


def _python_path(tree: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The installed tree brings libraries of its own beside it; a checkout has them in its environment."""
    vendor = tree / "vendor"
    if not vendor.is_dir():
        return {}
    before = environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{vendor}{os.pathsep}{before}" if before else str(vendor)}
