"""What is asked of each contender, and what is read from it."""

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.datapath.contenders import Contender
from tests.bench.datapath.processes import cpu_s, pss_kib

_IDLE_STREAMS = 1000
_SETTLE_S = 4.0


@dataclass(frozen=True)
class Load:
    """One kind of traffic. With `chunks` each connection asks for one stream, without it for JSON, again and again."""

    name: str
    connections: int
    body_bytes: int
    chunks: int = 0
    pause_us: int = 0


LOADS = (
    Load("json", 32, 800),
    Load("json 2 MB", 4, 2_000_000),
    Load("chunk paced", 200, 800, chunks=200, pause_us=20_000),
    Load("chunk flood", 50, 800, chunks=20_000),
)


def measure(program: Path, contender: Contender, load: Load, seconds: float) -> dict[str, float]:
    """CPU time of the contender for each request, or for each chunk of a stream."""
    words = [contender.port, load.connections, 60 if load.chunks else seconds, load.body_bytes]
    if load.chunks:
        words += [load.chunks, load.pause_us]
    before = cpu_s(contender.pid)
    done = subprocess.run([str(program), *map(str, words)], capture_output=True, text=True, check=True, timeout=120)
    time.sleep(0.05)  # its own last work of a request comes after the client's last byte
    spent_s = cpu_s(contender.pid) - before
    figures = json.loads(done.stdout)
    count = figures["chunks"] if load.chunks else figures["requests"]
    return {
        "cpu_us": round(spent_s * 1e6 / max(count, 1), 2),
        "per_s": round(count / figures["wall_s"]),
        "p50_us": figures["p50_us"],
        "p99_us": figures["p99_us"],
        "errors": figures["errors"],
    }


def measure_idle_streams(program: Path, contender: Contender) -> float:
    """Memory in KiB for each of many open streams that send a chunk every two seconds."""
    before = pss_kib(contender.pid)
    words = [contender.port, _IDLE_STREAMS, 60, 800, 4, 2_000_000]
    with subprocess.Popen([str(program), *map(str, words)], stdout=subprocess.PIPE, text=True) as clients:
        time.sleep(_SETTLE_S)
        grown = pss_kib(contender.pid) - before
        output, _ = clients.communicate(timeout=60)
    if json.loads(output)["errors"]:
        raise RuntimeError(f"{contender.name}: {output}")
    return round(grown / _IDLE_STREAMS, 1)
