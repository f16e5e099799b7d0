"""The feed of changes: at least once, the latest, no backlog, nobody forgotten or kept."""

import asyncio
import gc

from units.changes import ChangeFeed


async def test_every_listener_hears_of_every_unit_once_per_visit() -> None:
    feed = ChangeFeed()
    quick, slow = feed.listen(), feed.listen()
    feed.announce(["a", "b"])
    assert [await quick.next_name(), await quick.next_name()] == ["a", "b"]
    feed.announce(["a", "a"])
    assert await quick.next_name() == "a"
    assert [await slow.next_name(), await slow.next_name()] == ["a", "b"]


async def test_a_listener_counts_from_when_it_came() -> None:
    feed = ChangeFeed()
    feed.announce(["before"])
    listener = feed.listen()
    feed.announce(["after"])
    assert await listener.next_name() == "after"


async def test_a_waiting_listener_wakes_up() -> None:
    feed = ChangeFeed()
    listener = feed.listen()
    waiting = asyncio.create_task(listener.next_name())
    await asyncio.sleep(0)
    feed.announce(["a"])
    async with asyncio.timeout(30):
        assert await waiting == "a"


async def test_a_change_while_its_unit_is_being_looked_at_is_told_again() -> None:
    feed = ChangeFeed()
    listener = feed.listen()
    feed.announce(["a"])
    assert await listener.next_name() == "a"
    feed.announce(["a"])
    async with asyncio.timeout(30):
        assert await listener.next_name() == "a"


async def test_a_listener_that_is_gone_is_not_kept() -> None:
    feed = ChangeFeed()
    listener = feed.listen()
    del listener
    gc.collect()
    assert not feed._listeners
