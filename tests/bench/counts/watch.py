"""The programs that count for us: Valgrind's callgrind for instructions, strace for system calls.

Both watch a process while something is asked of it; what it did before and does after does not count.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_TOTALS = re.compile(r"^summary: (\d+)$", re.MULTILINE)
_SUMMARY_LINE = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", re.MULTILINE)
_ANSWER = re.compile(r"^calls (\w+)$", re.MULTILINE)
_SETTLE_S = 0.3
"""What a process does of its own after the client's last byte: within a tenth of a second."""
_PATIENCE_S = 60.0


def callgrind(folder: Path) -> list[str]:
    """The command that runs a program so that `count_instructions` can watch it. It starts without counting."""
    return ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counts.%p"]


def begin_instructions(pid: int) -> None:
    """Count from now on; what the process runs for the first time is translated first, so warm it up after this."""
    _tell(pid, "instrumentation on")


def count_instructions(pid: int, folder: Path, work: Callable[[], None]) -> int:
    """Instructions of the process itself, the kernel's left out, while `work` runs."""
    _tell(pid, "zero")
    work()
    time.sleep(_SETTLE_S)
    before = set(folder.glob(f"counts.{pid}.*"))
    _tell(pid, "dump")
    (dump,) = set(folder.glob(f"counts.{pid}.*")) - before
    found = _TOTALS.findall(dump.read_text())
    return sum(int(total) for total in found)


def _tell(pid: int, command: str) -> None:
    argv = ["vgdb", f"--pid={pid}", *command.split()]
    subprocess.run(argv, capture_output=True, text=True, check=True, timeout=_PATIENCE_S)


def count_system_calls(pid: int, folder: Path, work: Callable[[], None]) -> dict[str, int]:
    """By name, of all threads of the process, while `work` runs."""
    output = folder / "strace.out"
    tracer = subprocess.Popen(["strace", "-c", "-f", "-o", str(output), "-p", str(pid)], stderr=subprocess.PIPE)
    try:
        _wait_traced(pid, tracer)
        work()
        time.sleep(_SETTLE_S)
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.communicate(timeout=_PATIENCE_S)
    return parse_strace(output.read_text())


def count_function_calls(pid: int, log: Path, work: Callable[[], None]) -> int:
    """Of `tests.bench.counts.alone`, which writes its answers to `log`, while `work` runs."""
    _signal_and_read(pid, signal.SIGUSR1, log)
    work()
    time.sleep(_SETTLE_S)
    return int(_signal_and_read(pid, signal.SIGUSR2, log))


def _signal_and_read(pid: int, number: signal.Signals, log: Path) -> str:
    before = len(_ANSWER.findall(log.read_text()))
    os.kill(pid, number)
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        found: list[str] = _ANSWER.findall(log.read_text())
        if len(found) > before:
            return found[-1]
        time.sleep(0.02)
    raise TimeoutError(f"process {pid} does not answer {number.name}")


def _wait_traced(pid: int, tracer: "subprocess.Popen[bytes]") -> None:
    """Until all threads of the process are watched."""
    until = time.monotonic() + _PATIENCE_S
    while not all(_is_traced(task) for task in Path(f"/proc/{pid}/task").iterdir()):
        if tracer.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"strace does not watch process {pid}")
        time.sleep(0.02)


def _is_traced(task: Path) -> bool:
    return "\nTracerPid:\t0\n" not in (task / "status").read_text()


def parse_strace(text: str) -> dict[str, int]:
    """Name of a system call -> how often, of the table that `strace -c` prints."""
    return {name: int(calls) for calls, name in _SUMMARY_LINE.findall(text) if name != "total"}
