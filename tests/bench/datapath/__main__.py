"""`python -m tests.bench.datapath [--json] [--passes N] [--workers N] [--only NAME,…]`: the data path beside nginx.

All contenders run at once in front of one engine; each pass measures every one of them in turn, so that what else the
machine does hits all alike. Reported are medians over the passes, as CPU time per request or per chunk, and their
ratio to nginx in the same run. Compare within a run only. `docs/performance.md` says how to read it.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from tests.bench.datapath.app import KEY
from tests.bench.datapath.contenders import CONTENDERS, Contender
from tests.bench.datapath.loads import LOADS, Load, measure, measure_idle_streams
from tests.bench.datapath.processes import free_port, running, wait_serving
from tests.bench.datapath.routers import ROUTERS, find_router, read_version

_HERE = Path(__file__).parent
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
QUESTION = b'{"model":"m1","messages":[{"role":"user","content":"ready?"}]}'

Results = dict[str, dict[str, list[dict[str, float]]]]
"""By load, then contender: one measurement for each pass."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default=",".join(CONTENDERS), help=f"of {', '.join(CONTENDERS)}")
    parser.add_argument("--loads", default=",".join(load.name for load in LOADS))
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    chosen = parser.parse_args()
    loads = [load for load in LOADS if load.name in chosen.loads.split(",")]
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as name:
        folder = Path(name)
        load_program = compile_program(folder, "load")
        with _contenders(folder, chosen.only.split(","), chosen.workers) as contenders:
            results = _run(load_program, contenders, loads, chosen.passes, chosen.seconds)
            idle = {c.name: measure_idle_streams(load_program, c) for c in contenders}
    summary = _summarise(results, idle, chosen.workers)
    if chosen.json:
        print(json.dumps(summary, indent=2))
    else:
        _print_table(summary)
    return 0


def compile_program(folder: Path, name: str) -> Path:
    """One of the programs in C beside this file."""
    program = folder / name
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O2", "-o", str(program), str(_HERE / f"{name}.c")], check=True)
    return program


@contextlib.contextmanager
def _contenders(folder: Path, names: list[str], workers: int) -> Iterator[list[Contender]]:
    upstream = free_port()
    engine = compile_program(folder, "engine")
    with contextlib.ExitStack() as stack:
        stack.enter_context(running([str(engine), str(upstream)], env=os.environ, log=folder / "engine.out"))
        contenders = [stack.enter_context(CONTENDERS[name](folder, upstream, workers)) for name in names]
        for contender in contenders:
            wait_serving(contender.port, "/v1/chat/completions", QUESTION, HEADERS, timeout_s=90)
        yield contenders


def _run(program: Path, contenders: list[Contender], loads: list[Load], passes: int, seconds: float) -> Results:
    results: Results = {load.name: {c.name: [] for c in contenders} for load in loads}
    for number in range(passes):
        for load in loads:
            for contender in contenders:
                figures = measure(program, contender, load, seconds)
                results[load.name][contender.name].append(figures)
                words = "  ".join(f"{key} {value:g}" for key, value in figures.items())
                print(f"pass {number + 1}  {load.name:12} {contender.name:20} {words}", file=sys.stderr)
    return results


def _summarise(results: Results, idle: dict[str, float], workers: int) -> dict[str, object]:
    figures: dict[str, object] = {}
    for load, by_contender in results.items():
        medians = {
            name: {key: statistics.median(one[key] for one in measured) for key in measured[0]}
            for name, measured in by_contender.items()
        }
        reference = medians.get("nginx", {}).get("cpu_us", 0.0)
        for values in medians.values():
            values["ratio"] = round(values["cpu_us"] / reference, 2) if reference else 0.0
        figures[load] = medians
    return {
        "workers": workers,
        "processors": os.cpu_count(),
        "versions": _versions(),
        "figures": figures,
        "idle_stream_kib": idle,
    }


def _versions() -> dict[str, str]:
    nginx = subprocess.run(["/usr/sbin/nginx", "-v"], capture_output=True, text=True, check=False)
    names = ("falcon", "gunicorn", "httptools", "msgspec", "uvloop")
    found = {name: version(name) for name in names}
    found |= {name: read_version(name) for name in ROUTERS if find_router(name)}
    return found | {"python": sys.version.split()[0], "nginx": nginx.stderr.strip().rpartition("/")[2]}


def _print_table(summary: dict[str, object]) -> None:
    figures, idle, versions = summary["figures"], summary["idle_stream_kib"], summary["versions"]
    if not isinstance(figures, dict) or not isinstance(idle, dict) or not isinstance(versions, dict):
        raise TypeError("a summary of another shape")
    print(f"{'load':14}{'contender':22}{'CPU us':>9}{'x nginx':>9}{'per s':>10}{'p50 us':>9}{'p99 us':>9}{'errors':>8}")
    for load, by_contender in figures.items():
        for name, v in by_contender.items():
            numbers = f"{v['cpu_us']:9.1f}{v['ratio']:9.2f}{v['per_s']:10.0f}{v['p50_us']:9.0f}{v['p99_us']:9.0f}"
            print(f"{load:14}{name:22}{numbers}{v['errors']:8.0f}")
    for name, kib in idle.items():
        print(f"{'idle stream':14}{name:22}{kib:9.1f} KiB")
    print(", ".join(f"{name} {number}" for name, number in versions.items()), f"workers {summary['workers']}")


if __name__ == "__main__":
    sys.exit(main())
