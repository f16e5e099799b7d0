"""The simulated engine as a process, with a key of its own, and what it has counted."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.gateway.harness import raw_request
from tests.patience import MOMENT_S, SOON_S

REPOSITORY = Path(__file__).parents[3]
KEY = "sim-secret"
START_S = 30.0


@dataclass(frozen=True)
class Sim:
    """A running simulated engine."""

    port: int
    key_file: Path
    process: asyncio.subprocess.Process

    async def stats(self, *, closed_early: int = 0) -> dict[str, int]:
        """The counts; with `closed_early`, as soon as so many requests were left by their client (within a moment)."""
        query = f"?closedEarly={closed_early}&timeoutS={1 + MOMENT_S:g}" if closed_early else ""
        answer = await raw_request(
            ("127.0.0.1", self.port), f"/sim/stats{query}", method="GET", headers={"authorization": f"Bearer {KEY}"}
        )
        counts = json.loads(answer.body)
        assert isinstance(counts, dict)
        return counts

    async def wait_open(self) -> None:
        """Return once a request is being computed; the engine can be asked, but does not say so by itself."""
        async with asyncio.timeout(SOON_S):
            while True:
                if (await self.stats())["open"]:
                    return
                await asyncio.sleep(0.01)


@asynccontextmanager
async def sim(directory: Path, *arguments: str) -> AsyncIterator[Sim]:
    """Start it, wait until it says where it listens, and kill it with the block."""
    directory.mkdir(parents=True, exist_ok=True)
    key_file = directory / "sim.key"
    key_file.write_text(f"{KEY}\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "engines.sim", "--key-file", str(key_file), "--model", "m", *arguments,
        cwd=REPOSITORY, env={"PATH": os.environ["PATH"]}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        async with asyncio.timeout(START_S):
            line = await process.stderr.readline()
        found = re.search(rb"port=(\d+)", line)
        assert found, line
        yield Sim(int(found[1]), key_file, process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
