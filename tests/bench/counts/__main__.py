"""`python -m tests.bench.counts [--json]`: what a request costs, as counts that a busy machine does not change.

    instructions   of the process itself, the kernel's left out (Valgrind)
    system calls   of all its threads (strace), the busiest by name
    calls          of functions, Python's and C's together (the gateway only)

One client at a time, so that nothing depends on what happens to come together. The contenders are single processes
without an arbiter, with all that is on in a worker: keys, limits, metering, metrics, request lines. Counts do not
tell what an instruction or a system call takes; for that there is `tests.bench.datapath`, on a quiet machine. A count
that grew is a regression wherever it is seen.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.bench.counts.watch import (
    begin_instructions,
    callgrind,
    count_function_calls,
    count_instructions,
    count_system_calls,
)
from tests.bench.datapath.__main__ import HEADERS, QUESTION, compile_program
from tests.bench.datapath.contenders import Contender, gateway_environment, start_nginx
from tests.bench.datapath.processes import free_port, running, wait_serving

_SHOWN = 6
_BOOT_S = 180.0
"""Under Valgrind a start takes fifty times as long."""


@dataclass(frozen=True)
class Case:
    """What is asked for: words of `load.c` after its port, and the number in its answer that is divided by.

    Chunks that a busy machine lets come together are read as one, and counted as one.
    """

    name: str
    words: tuple[int, ...]
    unit: str


CASES = (
    Case("JSON request, connection kept", (1, 2, 800), "requests"),
    Case("stream of 4 chunks, new connection", (40, 60, 800, 4, 20_000), "requests"),
    Case("chunk of a stream", (1, 60, 800, 400, 10_000), "reads"),
)

Counts = dict[str, dict[str, dict[str, float]]]
"""By case, then contender: name of what was counted -> so many for each request or chunk."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmgw-counts-") as name:
        counts = _count(Path(name))
    print(json.dumps(counts, indent=2)) if chosen.json else _print_table(counts)
    return 0


def _count(folder: Path) -> Counts:
    load, engine, upstream = compile_program(folder, "load"), compile_program(folder, "engine"), free_port()
    counts: Counts = {case.name: {} for case in CASES}
    with running([str(engine), str(upstream)], env=os.environ, log=folder / "engine.out"):
        for name, start in (("nginx", start_nginx), ("gateway", start_alone)):
            for case in CASES:
                counts[case.name][name] = {}
            if _has("valgrind"):
                below = _subfolder(folder, f"{name}-watched")
                with start(below, upstream, 1, under=callgrind(below)) as contender:
                    _count_instructions(below, load, contender, counts)
            below = _subfolder(folder, name)
            with start(below, upstream, 1, under=("env",)) as contender:
                _count_calls(below, load, contender, counts)
    return counts


def _has(program: str) -> bool:
    if shutil.which(program):
        return True
    print(f"note: without {program}, what it counts is left out", file=sys.stderr)
    return False


def _subfolder(folder: Path, name: str) -> Path:
    below = folder / name
    below.mkdir()
    return below


@contextlib.contextmanager
def start_alone(folder: Path, upstream: int, workers: int, *, under: Sequence[str]) -> Iterator[Contender]:
    """The gateway as one process (`tests.bench.counts.alone`), run by the command `under`."""
    port = free_port()
    argv = [*under, sys.executable, "-m", "tests.bench.counts.alone", str(port)]
    with gateway_environment(folder, upstream) as env, running(argv, env=env, log=folder / "gateway.out") as pid:
        yield Contender("gateway", port, pid)


def _count_instructions(folder: Path, load: Path, contender: Contender, counts: Counts) -> None:
    wait_serving(contender.port, "/v1/chat/completions", QUESTION, HEADERS, timeout_s=_BOOT_S)
    begin_instructions(contender.pid)
    for case in CASES:
        _ask(load, contender, case)
    for case in CASES:
        asked: list[int] = []
        work = partial(_ask_and_note, load, contender, case, asked)
        total = count_instructions(contender.pid, folder, work)
        counts[case.name][contender.name]["instructions"] = round(total / asked[-1])


def _count_calls(folder: Path, load: Path, contender: Contender, counts: Counts) -> None:
    wait_serving(contender.port, "/v1/chat/completions", QUESTION, HEADERS, timeout_s=_BOOT_S)
    for case in CASES:
        asked: list[int] = []
        work = partial(_ask_and_note, load, contender, case, asked)
        figures = counts[case.name][contender.name]
        if contender.name == "gateway":
            calls = count_function_calls(contender.pid, folder / "gateway.out", work)
            figures["calls"] = round(calls / asked[-1], 1)
        if _has("strace"):
            found = count_system_calls(contender.pid, folder, work)
            figures["system calls"] = round(sum(found.values()) / asked[-1], 1)
            for name, calls in sorted(found.items(), key=lambda item: -item[1])[:_SHOWN]:
                figures[name] = round(calls / asked[-1], 2)


def _ask_and_note(load: Path, contender: Contender, case: Case, asked: list[int]) -> None:
    asked.append(_ask(load, contender, case))


def _ask(load: Path, contender: Contender, case: Case) -> int:
    """Returns how many there were. Raises: RuntimeError when one of them failed."""
    argv = [str(load), str(contender.port), *map(str, case.words)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    figures = json.loads(done.stdout)
    if figures["errors"]:
        raise RuntimeError(f"{contender.name}, {case.name}: {done.stdout} {done.stderr}")
    return int(figures[case.unit])


def _print_table(counts: Counts) -> None:
    for case, by_contender in counts.items():
        print(case)
        for contender, figures in by_contender.items():
            words = "  ".join(
                f"{name} {value:,g}" if value < 1000 else f"{name} {value:,.0f}" for name, value in figures.items()
            )
            print(f"  {contender:10}{words}")


if __name__ == "__main__":
    sys.exit(main())
