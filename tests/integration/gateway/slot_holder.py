"""A process that takes and gives back the one slot of a target, again and again: `python -m … FD,COLUMN PATH SECONDS`.

While it has the slot it locks the file at PATH, which nobody else may have locked then. It prints how often it had the
slot, or fails at the first time that two had it.
"""

import asyncio
import fcntl
import sys
import time
from pathlib import Path

from core.clock import SystemClock
from gateway.board import BOARD_VARIABLE, open_seat
from gateway.slots import Slots
from gateway.turns import STANDARD, Limits


async def hold(place: str, path: Path, seconds: float) -> int:
    """Wait for the slot now and then; mostly just try."""
    slots = Slots(open_seat({BOARD_VARIABLE: place}).row("t"), SystemClock())
    slots.configure(Limits(slots=1))
    end_s, held, tries = time.monotonic() + seconds, 0, 0
    with path.open("r+b") as file:
        while time.monotonic() < end_s:
            tries += 1
            if not slots.try_take(STANDARD):
                if tries % 50:
                    continue
                await slots.wait(STANDARD, "m")
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file, fcntl.LOCK_UN)
            slots.release(STANDARD)
            held += 1
    return held


if __name__ == "__main__":
    sys.stdout.write(f"{asyncio.run(hold(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])))}\n")
