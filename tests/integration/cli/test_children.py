"""Children of `llmgw up` as real processes: restarted, given up, stopped with all that they started, found again."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.up.child import Child, ChildFailed, trim_log
from cli.up.leftovers import end_leftovers, find_marked
from cli.up.programs import MARK, Program

WAIT_S = 60.0


def program(tmp_path: Path, script: str, **environment: str) -> Program:
    """A child that runs a shell script; `$SEEN` is a fifo-like file that it appends to."""
    return Program(
        name="child",
        argv=("/bin/sh", "-c", script),
        environment={"PATH": os.environ["PATH"], "SEEN": str(tmp_path / "seen"), MARK: str(tmp_path), **environment},
        directory=tmp_path,
        log=tmp_path / "child.log",
    )


async def wait_lines(path: Path, count: int) -> list[str]:
    """Until the file has so many whole lines."""
    async with asyncio.timeout(WAIT_S):
        while True:
            lines = path.read_text().splitlines() if path.exists() else []
            if len(lines) >= count:
                return lines
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(child: Child) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(child.run())
    try:
        yield task
    finally:
        await child.stop(2.0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ChildFailed):
            await task


async def test_a_child_that_was_killed_is_started_again(tmp_path: Path) -> None:
    child = Child(program(tmp_path, "echo $$ >> $SEEN; exec sleep 60"))

    async with running(child):
        first = int((await wait_lines(tmp_path / "seen", 1))[0])
        os.kill(first, signal.SIGKILL)
        lines = await wait_lines(tmp_path / "seen", 2)

    assert lines[1] != lines[0]


async def test_a_child_that_never_stays_up_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    child = Child(program(tmp_path, "echo starting >> $SEEN; echo no such thing as luck >&2; exit 7"))

    with pytest.raises(ChildFailed, match="ended with status 7: no such thing as luck"):
        async with asyncio.timeout(WAIT_S):
            await child.run()

    assert len(await wait_lines(tmp_path / "seen", 3)) == 3


async def test_what_a_killed_child_leaves_behind_is_gone_before_it_is_started_again(tmp_path: Path) -> None:
    child = Child(program(tmp_path, "sleep 62 & echo $$ $! >> $SEEN; wait"))

    async with running(child):
        main, worker = map(int, (await wait_lines(tmp_path / "seen", 1))[0].split())
        os.kill(main, signal.SIGKILL)
        await wait_lines(tmp_path / "seen", 2)
        assert not is_alive(worker)


async def test_once_it_has_served_a_child_is_never_given_up(tmp_path: Path) -> None:
    child = Child(program(tmp_path, "echo x >> $SEEN; exit 1"))
    child.patient = True

    async with running(child) as task:
        await wait_lines(tmp_path / "seen", 4)
        assert not task.done()


async def test_stopping_ends_a_child_that_ignores_sigterm_and_what_it_started(tmp_path: Path) -> None:
    child = Child(program(tmp_path, "trap '' TERM; sleep 61 & echo $! >> $SEEN; echo $$ >> $SEEN; wait; wait"))

    async with running(child):
        pids = [int(line) for line in await wait_lines(tmp_path / "seen", 2)]
        await child.stop(0.2)

    # Killed with its parent, whose end is what was waited for: its own may take a busy machine a moment more.
    async with asyncio.timeout(WAIT_S):
        while any(is_alive(pid) for pid in pids):  # noqa: ASYNC110 - it is nobody's child: there is no event
            await asyncio.sleep(0.01)


async def test_a_hurry_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    child = Child(program(tmp_path, "trap '' TERM; echo $$ >> $SEEN; while :; do sleep 1; done"))
    hurry = asyncio.Event()

    async with running(child):
        await wait_lines(tmp_path / "seen", 1)
        hurry.set()
        async with asyncio.timeout(WAIT_S):
            await child.stop(3600, hurry=hurry)


async def test_a_child_is_not_started_again_when_it_was_stopped_during_its_pause(tmp_path: Path) -> None:
    child = Child(program(tmp_path, "echo x >> $SEEN; exit 1"))
    child.patient = True

    async with running(child):
        await wait_lines(tmp_path / "seen", 3)
        await child.stop(1.0)
        before = (tmp_path / "seen").read_text()

    assert (tmp_path / "seen").read_text() == before


async def test_a_program_that_cannot_be_started_says_so(tmp_path: Path) -> None:
    missing = Program("gone", ("/nonexistent/program",), {}, tmp_path, tmp_path / "log")

    with pytest.raises(ChildFailed, match="gone cannot be started"):
        await Child(missing).run()


async def test_leftovers_are_found_by_their_mark_and_ended_and_others_are_left_alone(tmp_path: Path) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    async with (
        marked_sleep(ours, "exec sleep 60") as plain,
        marked_sleep(other, "exec sleep 60") as foreign,
        marked_sleep(ours, "trap '' TERM; while :; do sleep 1; done") as stubborn,
    ):
        async with asyncio.timeout(WAIT_S):
            ended = await end_leftovers(ours)

        assert {plain.pid, stubborn.pid} <= set(ended)
        assert foreign.pid not in ended
        assert find_marked(ours) == []
        assert find_marked(other) == [foreign.pid]


@contextlib.asynccontextmanager
async def marked_sleep(root: Path, script: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", script, env={"PATH": os.environ["PATH"], MARK: str(root)}, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def test_nobody_marked_is_nobody_found(tmp_path: Path) -> None:
    assert find_marked(tmp_path) == []
    assert find_marked(tmp_path, proc=tmp_path) == []


def test_a_log_that_grew_too_large_starts_anew_and_its_end_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    with open(log, "ab", buffering=0) as writer:
        os.truncate(log, 65 << 20)
        writer.write(b"the last line\n")
        trim_log(log)
        writer.write(b"after\n")

    assert log.read_bytes() == b"after\n"
    assert (tmp_path / "x.log.1").read_bytes().endswith(b"the last line\n")


def test_a_log_of_normal_size_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("a line\n")

    trim_log(log)
    trim_log(tmp_path / "missing.log")

    assert log.read_text() == "a line\n"
    assert not (tmp_path / "x.log.1").exists()


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
