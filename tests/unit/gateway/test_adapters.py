"""What is asked of the daemon when a request needs a LoRA adapter, and what its client hears when there is none."""

import asyncio
from collections.abc import Callable

import pytest

from core.api import AdapterReply
from core.client import DaemonUnavailable
from core.errors import BY_STATUS, DependencyError, LlmgwError
from gateway.adapters import AdapterAsker, refused
from gateway.errors import ApiError


class Daemon:
    """Answers when a test lets it. A mock: what is looked at is who asks how often, and no socket changes that."""

    def __init__(self, *answers: LlmgwError | None) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.left = 0
        self.answering = asyncio.Event()

    async def load_adapter(self, runtime_id: str, adapter: str) -> AdapterReply:
        self.asked += 1
        try:
            await self.answering.wait()
        except asyncio.CancelledError:
            self.left += 1
            raise
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        return AdapterReply(runtime=runtime_id, adapter=adapter)


async def settle(event: asyncio.Event) -> bool:
    """The route table has it once the event is set."""
    return await event.wait()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - other tasks of this loop have their turn
            await asyncio.sleep(0)


def ask(asker: AdapterAsker, there: asyncio.Event, name: str = "x") -> asyncio.Task[bool]:
    return asyncio.create_task(asker.load("r", name, "m", settle(there)))


async def test_many_ask_once_and_all_hear_of_it() -> None:
    daemon, there = Daemon(), asyncio.Event()
    asker = AdapterAsker(daemon)  # type: ignore[arg-type]
    waiting = [ask(asker, there) for _ in range(5)]
    await until(lambda: daemon.asked == 1)
    daemon.answering.set()
    there.set()
    assert await asyncio.gather(*waiting) == [True] * 5
    assert daemon.asked == 1


async def test_an_answer_is_not_enough_while_the_routes_do_not_say_so() -> None:
    daemon, there = Daemon(), asyncio.Event()
    daemon.answering.set()
    waiting = ask(AdapterAsker(daemon), there)  # type: ignore[arg-type]
    await until(lambda: daemon.asked == 1)
    assert not waiting.done()
    there.set()
    assert await waiting


async def test_the_last_who_leaves_takes_the_wish_along() -> None:
    daemon, there = Daemon(), asyncio.Event()
    asker = AdapterAsker(daemon)  # type: ignore[arg-type]
    first, second = ask(asker, there), ask(asker, there)
    await until(lambda: daemon.asked == 1)
    first.cancel()
    await asyncio.wait([first])
    assert daemon.left == 0
    second.cancel()
    await asyncio.wait([second])
    await until(lambda: daemon.left == 1)
    third = ask(asker, there)
    await until(lambda: daemon.asked == 2)
    daemon.answering.set()
    there.set()
    assert await third


async def test_a_refusal_reaches_everybody_and_is_not_kept() -> None:
    daemon, there = Daemon(DependencyError("no", code="adapter_failed")), asyncio.Event()
    asker = AdapterAsker(daemon)  # type: ignore[arg-type]
    waiting = [ask(asker, there) for _ in range(3)]
    await until(lambda: daemon.asked == 1)
    daemon.answering.set()
    heard = await asyncio.gather(*waiting, return_exceptions=True)
    assert [error.code for error in heard if isinstance(error, ApiError)] == ["adapter_failed"] * 3
    there.set()
    assert await ask(asker, there)


async def test_a_daemon_that_is_away_for_a_moment_is_asked_again() -> None:
    daemon, there = Daemon(DaemonUnavailable("away"), DaemonUnavailable("away")), asyncio.Event()
    daemon.answering.set()
    waiting = ask(AdapterAsker(daemon), there)  # type: ignore[arg-type]
    async with asyncio.timeout(30):
        while daemon.asked < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    there.set()
    assert await waiting


async def test_closing_leaves_nothing_behind() -> None:
    daemon, there = Daemon(), asyncio.Event()
    asker = AdapterAsker(daemon)  # type: ignore[arg-type]
    waiting = ask(asker, there)
    await until(lambda: daemon.asked == 1)
    await asker.close()
    await asyncio.wait([waiting])
    assert daemon.left == 1


@pytest.mark.parametrize("status", sorted(BY_STATUS))
def test_only_what_passes_by_itself_says_when_to_come_back(status: int) -> None:
    told = refused(BY_STATUS[status]("the file /srv/x is odd"), "m")
    assert (told.http_status, told.retry_after_s > 0) == (503, status in (429, 503, 504))
    assert told.model == "m" and "/srv/x" not in told.message


def test_what_is_missing_is_not_called_broken() -> None:
    assert refused(BY_STATUS[404]("it is not here", code="weights_missing"), "m").code == "adapter_missing"
