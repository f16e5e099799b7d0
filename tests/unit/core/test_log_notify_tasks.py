"""Log lines, readiness datagrams, backoff, and parts that end together."""

import asyncio
import io
import socket
from pathlib import Path

import pytest

from core import log as logging
from core.notify import Notifier
from core.secret import Secret
from core.tasks import Backoff, run_until_first


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("two words", '"two words"'),
        ("", '""'),
        ("line\nline", r'"line\nline"'),
        ("a=b", '"a=b"'),
        ('say "x"', r'"say \"x\""'),
        ("\x1b[31m", r'"\u001b[31m"'),
        (True, "yes"),
        (1.25, "1.25"),
        (None, "None"),
        (Secret("sk-1"), "…"),
        (Path("/a/b"), "/a/b"),
    ],
)
def test_a_value_stays_on_its_line(value: object, text: str) -> None:
    assert logging.format_value(value) == text


def test_lines_carry_event_bound_facts_and_facts() -> None:
    stream = io.StringIO()
    logging.configure("test", "info", stream)
    log = logging.get_logger("x").bind(runtime="qwen")
    log.info("runtime_started", pid=3)
    log.debug("not_shown")
    assert stream.getvalue().endswith("runtime_started runtime=qwen pid=3\n")
    assert stream.getvalue().count("\n") == 1
    logging.configure("test")


def test_readiness_reaches_the_socket(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "n"))
        sock.settimeout(30)
        notifier = Notifier.from_environment({"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "2000000"})
        notifier.ready("serving\nREADY=0")
        assert sock.recv(200) == b"READY=1\nSTATUS=serving READY=0"
        assert notifier.watchdog_s == 2.0


def test_without_a_socket_nothing_happens() -> None:
    Notifier.from_environment({}).ready()


def test_backoff_doubles_within_its_cap_and_starts_over() -> None:
    backoff = Backoff(1.0, 4.0)
    steps = [backoff.next_s() for _ in range(5)]
    for got, full in zip(steps, [1, 2, 4, 4, 4], strict=True):
        assert full / 2 <= got <= full
    backoff.reset()
    assert backoff.next_s() <= 1.0


def test_a_secret_never_shows_itself() -> None:
    secret = Secret("sk-123")
    assert "sk-123" not in f"{secret} {secret!r}"
    assert secret.matches("sk-123")
    assert not secret.matches("sk-124")


async def test_parts_end_with_the_first_of_them_and_its_failure_is_theirs() -> None:
    ended: list[str] = []

    async def part(name: str, turns: int, *, fails: bool = False) -> None:
        try:
            for _ in range(turns):
                await asyncio.sleep(0)
            if fails:
                raise ValueError(name)
        finally:
            ended.append(name)

    await run_until_first(part("first", 1), part("second", 1000))
    assert ended == ["first", "second"]
    with pytest.raises(ValueError, match="third"):
        await run_until_first(part("third", 1, fails=True), part("fourth", 1000))
    assert ended == ["first", "second", "third", "fourth"]
