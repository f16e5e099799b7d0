"""Runs `nvidia-smi`: one child at a time, each under a deadline, and never a second beside one that is stuck.

A broken driver holds the program in uninterruptible sleep, where not even SIGKILL ends it. Such a child is
remembered: as long as it lives nothing else is started, so that a node with a hung driver has one stuck process and
not one more every few seconds. Everything that goes wrong comes out as `NvidiaFailed` with a problem for the node.
"""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from core.errors import DependencyError
from core.hardware import Problem
from core.process import ProcessFailed, ProcessTimedOut, run_process
from daemon.hardware.cards import Details
from daemon.hardware.nvidia import (
    LIST_ARGV,
    NVLINK_ARGV,
    QUERY_ARGV,
    OutputUnreadable,
    parse_list,
    parse_nvlinks,
    parse_query,
)
from daemon.hardware.nvidia_failure import judge_failure, lost_card
from daemon.hardware.nvidia_report import REPORT_ARGV, Report, parse_report

T = TypeVar("T")
_LIMIT_BYTES = 16 << 20
_UNKNOWN_SUBCOMMAND = frozenset({1, 2, 3, 255})
"""How drivers without NVLink, or too old for the question, answer `nvlink -e`."""


class NvidiaFailed(DependencyError):
    """nvidia-smi gave no answer; `problem` says what that means for the node."""

    code = "nvidia_smi_failed"

    def __init__(self, problem: Problem, *, lost_card: str = "") -> None:
        super().__init__(problem.message, hint=problem.hint, code=problem.code)
        self.problem = problem
        self.lost_card = lost_card
        """Bus id of the card that the failure names."""


class NvidiaReader:
    """One per daemon."""

    def __init__(self, executable: str, timeout_s: float, proc: Path = Path("/proc")) -> None:
        self._executable = executable
        self._timeout_s = timeout_s
        self._proc = proc
        self._one_child = asyncio.Lock()
        self._stuck_pid = 0

    def use(self, executable: str, timeout_s: float) -> None:
        """Run another program from now on. A child that is stuck stays remembered."""
        self._executable = executable
        self._timeout_s = timeout_s

    def is_installed(self) -> bool:
        return shutil.which(self._executable) is not None

    async def read_report(self, only: Sequence[str] = ()) -> Report:
        """The full report, of all cards or of those with the given UUIDs. Raises: NvidiaFailed."""
        chosen = ("-i", ",".join(only)) if only else ()
        return await self._ask((*REPORT_ARGV, *chosen), parse_report)

    async def read_details(self) -> Details:
        """What changes seldom. Raises: NvidiaFailed."""
        queried = await self._ask(QUERY_ARGV, parse_query)
        instances = await self._ask(LIST_ARGV, parse_list)
        try:
            nvlinks = await self._ask(NVLINK_ARGV, parse_nvlinks)
        except NvidiaFailed as error:
            cause = error.__cause__
            if not (isinstance(cause, ProcessFailed) and cause.exit_status in _UNKNOWN_SUBCOMMAND):
                raise
            nvlinks = {}
        return Details({card.uuid: card for card in queried}, instances, nvlinks)

    async def _ask(self, arguments: Sequence[str], parse: Callable[[str], T]) -> T:
        async with self._one_child:
            self._check_stuck()
            try:
                done = await run_process(
                    [self._executable, *arguments], timeout_s=self._timeout_s, limit_bytes=_LIMIT_BYTES
                )
                return parse(done.text)
            except ProcessTimedOut as error:
                self._stuck_pid = error.stuck_pid
                raise NvidiaFailed(_timed_out(self._timeout_s, self._stuck_pid)) from error
            except ProcessFailed as error:
                raise self._failed(error) from error
            except OutputUnreadable as error:
                problem = Problem(code=error.code, message=error.message, hint=error.hint)
                raise NvidiaFailed(problem) from error

    def _failed(self, error: ProcessFailed) -> NvidiaFailed:
        if error.exit_status is None:
            hint = "install the driver's package with nvidia-smi, or set hardware.nvidiaSmi"
            return NvidiaFailed(Problem(code="nvidia_smi_missing", message=error.message, hint=hint))
        return NvidiaFailed(judge_failure(error.exit_status, error.output), lost_card=lost_card(error.output))

    def _check_stuck(self) -> None:
        """Raises: NvidiaFailed while an earlier child still hangs."""
        if self._stuck_pid and self._is_alive(self._stuck_pid):
            raise NvidiaFailed(_timed_out(self._timeout_s, self._stuck_pid))
        self._stuck_pid = 0

    def _is_alive(self, pid: int) -> bool:
        """A child that was given up keeps its pid until it is reaped; as a zombie it is gone already."""
        try:
            stat = (self._proc / str(pid) / "stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[:1] != ["Z"]


def _timed_out(timeout_s: float, stuck_pid: int) -> Problem:
    if stuck_pid:
        return Problem(
            code="nvidia_smi_stuck",
            message=f"nvidia-smi (pid {stuck_pid}) hangs in the driver and cannot be killed",
            hint="the driver is broken: runtimes that serve go on; reboot this node when it can be spared",
        )
    return Problem(
        code="nvidia_smi_timed_out",
        message=f"nvidia-smi did not answer within {timeout_s:g} s and was killed",
        hint="nvidia-smi -pm 1 makes it answer sooner; hardware.nvidiaSmiTimeoutMs allows more",
    )
