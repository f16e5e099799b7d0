"""The door for subprocesses, with real children."""

import os
import signal
import time

import pytest

from core.process import ProcessFailed, ProcessTimedOut, last_lines, run_process


async def test_output_and_input_pass_through() -> None:
    done = await run_process(["cat"], timeout_s=10, stdin=b"hello")
    assert (done.code, done.stdout) == (0, b"hello")


async def test_a_failing_command_is_an_error_with_its_last_words() -> None:
    with pytest.raises(ProcessFailed, match="exited with 3: out of luck") as caught:
        await run_process(["sh", "-c", "echo out of luck >&2; exit 3"], timeout_s=10)
    assert caught.value.exit_status == 3


async def test_a_missing_command_is_an_error_that_names_it() -> None:
    with pytest.raises(ProcessFailed, match="no-such-thing cannot be started: No such file"):
        await run_process(["no-such-thing"], timeout_s=10)


async def test_a_child_that_ignores_sigterm_is_killed_and_reaped() -> None:
    start = time.monotonic()
    with pytest.raises(ProcessTimedOut, match="did not end within 0.3 s"):
        await run_process(["sh", "-c", "trap '' TERM; echo $$; while :; do sleep 1; done"], timeout_s=0.3)
    assert time.monotonic() - start < 20


async def test_too_much_output_ends_the_child() -> None:
    with pytest.raises(ProcessFailed, match="more than 1000 bytes"):
        await run_process(["sh", "-c", "yes"], timeout_s=10, limit_bytes=1000)


async def test_a_signal_is_named() -> None:
    with pytest.raises(ProcessFailed, match="SIGKILL"):
        await run_process(["sh", "-c", f"kill -{signal.SIGKILL.value} $$"], timeout_s=10)


async def test_the_environment_is_chosen_not_inherited() -> None:
    os.environ["LLMGW_TEST_LEAK"] = "secret"
    try:
        done = await run_process(["env"], timeout_s=10)
        assert b"LLMGW_TEST_LEAK" not in done.stdout
        only = await run_process(["/usr/bin/env"], timeout_s=10, env={"A": "1"})
        assert only.stdout == b"A=1\n"
    finally:
        del os.environ["LLMGW_TEST_LEAK"]


@pytest.mark.parametrize(
    ("output", "expected"),
    [(b"", ""), (b"a\n\nb\nc\nd\n", "b / c / d"), (b"\x1b[31mred\x00\n", "[31mred"), (b"x" * 5000, "x" * 600)],
)
def test_last_lines_are_short_and_printable(output: bytes, expected: str) -> None:
    assert last_lines(output, 3) == expected
