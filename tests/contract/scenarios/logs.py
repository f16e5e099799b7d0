"""What a unit wrote: read back, followed, over its lives, whole to the last word."""

import asyncio

from tests.contract.actor import ODD_LINES
from tests.contract.lab import PATIENCE_S, Lab, close
from units.backend import ActiveState


async def the_last_lines_are_read_oldest_first(lab: Lab) -> None:
    unit = lab.act("say", *(f"line {number}" for number in range(10)))
    await lab.start(unit)
    await lab.until_line(unit.name, "line 9")
    await lab.until_line(unit.name, "line 8")
    lines = await lab.backend.read_log(unit.name, 4)
    # The two streams of a service are two pipes: only the order within each is sure.
    assert len(lines) == 4
    assert sorted(await lab.backend.read_log(unit.name, 100)) == sorted(f"line {number}" for number in range(10))
    assert await lab.backend.read_log(unit.name, 0) == []


async def a_unit_that_never_ran_has_no_log(lab: Lab) -> None:
    unit = lab.act("say")
    await lab.install(unit)
    assert await lab.backend.read_log(unit.name, 10) == []
    assert await lab.backend.read_log("llmgw-engine-never-was.service", 10) == []


async def a_last_line_without_an_end_is_kept(lab: Lab) -> None:
    unit = lab.act("say", "Traceback", "--partial", "out of mem")
    await lab.start(unit)
    await lab.until_state(unit.name, ActiveState.FAILED)
    await lab.until_line(unit.name, "out of mem")
    assert await lab.backend.read_log(unit.name, 2) == ["Traceback", "out of mem"]


async def earlier_lives_are_in_the_log(lab: Lab) -> None:
    unit = lab.act("exit", "1", "first and second")
    await lab.start(unit)
    await lab.until_state(unit.name, ActiveState.FAILED)
    await lab.until_line(unit.name, "first and second")
    await lab.install(lab.act("exit", "1", "third", name=unit.name))
    await lab.backend.start(unit.name)
    await lab.until_line(unit.name, "third")
    assert await lab.backend.read_log(unit.name, 10) == ["first and second", "third"]


async def a_log_is_followed_over_a_restart(lab: Lab) -> None:
    unit = lab.act("say", "hello")
    await lab.start(unit)
    log = lab.backend.follow_log(unit.name, 10)
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert await anext(log) == "hello"
            await lab.backend.restart(unit.name)
            assert await anext(log) == "hello"
    finally:
        await close(log)


async def following_may_begin_before_there_is_anything(lab: Lab) -> None:
    for lines in (10, 0):
        unit = lab.act("exit", "0", "one", "two")
        await lab.install(unit)
        log = lab.backend.follow_log(unit.name, lines)
        first = asyncio.ensure_future(anext(log))
        try:
            async with asyncio.timeout(PATIENCE_S):
                # Time for the follower to be there; without it this would only test what is read at the start.
                await asyncio.wait((first,), timeout=0.5)
                await lab.backend.start(unit.name)
                assert await first == "one"
                assert await anext(log) == "two"
        finally:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await close(log)


async def following_begins_with_as_many_lines_as_asked(lab: Lab) -> None:
    unit = lab.act("exit", "0", "one", "two", "three")
    await lab.start(unit)
    await lab.until_line(unit.name, "three")
    log = lab.backend.follow_log(unit.name, 2)
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert [await anext(log), await anext(log)] == ["two", "three"]
    finally:
        await close(log)


async def odd_lines_come_back_as_they_were(lab: Lab) -> None:
    unit = lab.act("odd")
    await lab.start(unit)
    await lab.until_line(unit.name, "end")
    found = await lab.backend.read_log(unit.name, len(ODD_LINES))
    assert found == list(ODD_LINES), found


async def a_flood_loses_nothing_at_its_end(lab: Lab) -> None:
    unit = lab.act("flood", "50000")
    await lab.start(unit)
    await lab.until_state(unit.name, ActiveState.FAILED)
    await lab.until_line(unit.name, "line 49999")
    assert await lab.backend.read_log(unit.name, 1000) == [f"line {number}" for number in range(49000, 50000)]
