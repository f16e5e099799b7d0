"""Shows a long operation: a bar per step on a terminal, a line per step elsewhere. On stderr, always."""

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TaskID, TextColumn, TransferSpeedColumn

from cli.output import note, visible
from core.api import Progress as Step
from core.errors import DependencyError, LlmgwError

_LINE_EVERY_BYTES = 32 << 20
"""Without a terminal: a line per this many bytes, so that a log shows life and stays short."""


class CutOff(DependencyError):
    """The daemon went away before the operation ended; doing it again goes on where it was."""

    code = "cut_off"


class ProgressView:
    """Several operations at once, each under a name. A context manager."""

    def __init__(self) -> None:
        console = Console(file=sys.stderr, highlight=False)
        self._bars: Progress | None = None
        if console.is_terminal:
            self._bars = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=30),
                DownloadColumn(),
                TransferSpeedColumn(),
                console=console,
                transient=True,
            )

    def __enter__(self) -> "ProgressView":
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def begin(self, name: str) -> Callable[[Step], None]:
        """Where the steps of something that this process does itself are shown."""
        return _Line(name, self._bars).show

    async def follow(self, name: str, steps: AsyncGenerator[Step, None]) -> str:
        """Show every step until the last one. Returns what was made.

        Raises: the error that the last line carries; CutOff when there was no last line.
        """
        line = _Line(name, self._bars)
        async with aclosing(steps):
            async for step in steps:
                if step.error is not None:
                    raise read_step_error(step)
                if step.done:
                    line.finish(step.done)
                    return step.done
                line.show(step)
        raise CutOff(f"{name}: the daemon went away in the middle", hint="run the same again")


class _Line:
    """One operation on the screen."""

    def __init__(self, name: str, bars: Progress | None) -> None:
        self._name = name
        self._bars = bars
        self._bar: TaskID | None = bars.add_task(visible(name), total=None) if bars else None
        self._step = ""
        self._detail = ""
        self._told_bytes = 0

    def show(self, step: Step) -> None:
        what = f"{self._name}: {step.step}" + (f" {step.detail}" if step.detail else "")
        if self._bars is not None and self._bar is not None:
            self._bars.update(
                self._bar, description=visible(what), completed=step.done_bytes or 0, total=step.total_bytes
            )
        elif step.step != self._step or (step.done_bytes or 0) - self._told_bytes >= _LINE_EVERY_BYTES:
            self._told_bytes = step.done_bytes or 0
            told_mib = self._told_bytes >> 20
            note(what + (f" ({told_mib} MiB)" if told_mib else ""))
        self._step, self._detail = step.step, step.detail

    def finish(self, made: str) -> None:
        if self._bars is not None and self._bar is not None:
            self._bars.remove_task(self._bar)
            # Through the bars' own console: it moves them out of the way.
            self._bars.console.print(visible(f"{self._name}: {made}"), markup=False, soft_wrap=True)
        elif made != self._detail:  # without bars the last step may have said it
            note(f"{self._name}: {made}")


def read_step_error(step: Step) -> LlmgwError:
    """The error of a failed operation, with its own code and hint."""
    if step.error is None:
        return DependencyError(f"{step.step} failed")
    return DependencyError(step.error.message, hint=step.error.hint, code=step.error.code)
