"""The board between real processes: two never have the same slot, and one that is killed holds nothing up."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from core.clock import SystemClock
from gateway.board import Board, Seat
from gateway.slots import Slots
from gateway.turns import STANDARD, Limits
from tests.patience import SOON_S

REPOSITORY = Path(__file__).parents[3]


async def holder(board: Board, column: int, path: Path, seconds: float) -> asyncio.subprocess.Process:
    """A process at this column; see `slot_holder.py`."""
    wakers = [board.waker(each) for each in range(1, 6)]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.gateway.slot_holder", f"{board.fd},{column}", str(path), str(seconds),
        cwd=REPOSITORY, env={"PATH": os.environ["PATH"]}, pass_fds=[board.fd, *wakers],
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize("count", [2, 4])
async def test_two_processes_never_have_the_same_slot(tmp_path: Path, count: int) -> None:
    board = Board.create(columns=6)
    path = tmp_path / "held"
    path.write_bytes(b"x")
    columns = list(range(1, count + 1))
    board.offer_column(set(range(1, count)))
    processes = [await holder(board, column, path, 2.0) for column in columns]
    ends = [await process.communicate() for process in processes]
    board.close()
    assert [process.returncode for process in processes] == [0] * count, ends
    assert all(int(out) > 10 for out, _ in ends), ends


async def test_a_process_that_is_killed_with_the_slot_holds_nobody_up(tmp_path: Path) -> None:
    board = Board.create(columns=6)
    path = tmp_path / "held"
    path.write_bytes(b"x")
    board.offer_column({1})
    mine = Slots(Seat(board, 2).row("t"), SystemClock())
    mine.configure(Limits(slots=1))
    for _ in range(5):
        process = await holder(board, 1, path, 60.0)
        async with asyncio.timeout(SOON_S):
            while mine.in_use == 0:  # noqa: ASYNC110 - it is another process that begins, and says nothing
                await asyncio.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        await process.communicate()
        board.clear_column(1)
        async with asyncio.timeout(SOON_S):
            assert await mine.wait(STANDARD, "m") is mine
        mine.release(STANDARD)
        assert mine.in_use == 0
    board.close()
