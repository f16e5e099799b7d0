"""Slots and queues of several workers at one board, in one process: each worker is a seat with loads of its own."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.clock import SystemClock
from gateway.board import Board, Cell, Seat
from gateway.errors import ApiError
from gateway.slots import STUCK_S, Slots
from gateway.turns import INTERACTIVE, STANDARD, WAITER, Limits
from tests.patience import MOMENT_S, SOON_S


class Worker:
    """One worker's view of one target. `answers` False: it was stopped, and takes note of nothing."""

    def __init__(self, board: Board, column: int, limits: Limits) -> None:
        self.seat = Seat(board, column)
        self.slots = Slots(self.seat.row("t"), SystemClock())
        self.slots.configure(limits)
        asyncio.get_running_loop().add_reader(self.seat.waker, self.woken)

    def woken(self) -> None:
        self.seat.hush()
        self.slots.let_in()

    async def wait(self, unit: int = STANDARD) -> Slots:
        while (found := await self.slots.wait(unit, "m")) is None:
            pass
        return found


@asynccontextmanager
async def workers(count: int, limits: Limits) -> AsyncIterator[list[Worker]]:
    board = Board.create(columns=count + 1)
    taken: set[int] = set()
    for _ in range(count):
        taken.add(board.offer_column(taken))
    found = [Worker(board, column, limits) for column in sorted(taken)]
    try:
        async with asyncio.timeout(SOON_S):
            yield found
    finally:
        for worker in found:
            asyncio.get_running_loop().remove_reader(worker.seat.waker)
        board.close()


async def queued(*coroutines: Coroutine[None, None, Slots]) -> list[asyncio.Task[Slots]]:
    """Have them wait, in this order."""
    tasks = []
    for coroutine in coroutines:
        tasks.append(asyncio.get_running_loop().create_task(coroutine))
        await asyncio.sleep(0)
    return tasks


async def done(tasks: list[asyncio.Task[Slots]], count: int) -> list[int]:
    """Which have a slot, once it is so many."""
    while sum(task.done() for task in tasks) < count:
        await asyncio.wait([task for task in tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED)
    return [index for index, task in enumerate(tasks) if task.done()]


async def test_the_limit_holds_over_all_workers() -> None:
    async with workers(3, Limits(slots=4)) as (one, two, three):
        assert [worker.slots.try_take(STANDARD) for worker in (one, two, three, one, two, three)] == [True] * 4 + [
            False,
            False,
        ]
        one.slots.release(STANDARD)
        assert three.slots.try_take(STANDARD) and not two.slots.try_take(STANDARD)
        assert one.slots.in_use == 4


async def test_a_freed_slot_goes_to_whoever_waited_longest_in_whichever_worker() -> None:
    async with workers(3, Limits(slots=1)) as (one, two, three):
        assert one.slots.try_take(STANDARD)
        tasks = await queued(two.wait(), three.wait(), one.wait(), two.wait())
        holder, order = one.slots, []
        for number in range(4):
            holder.release(STANDARD)
            found = await done(tasks, number + 1)
            order.append(next(index for index in found if index not in order))
            holder = tasks[order[-1]].result()
            assert one.slots.in_use == 4 - number
        assert order == [0, 1, 2, 3]


async def test_nobody_passes_those_who_wait() -> None:
    async with workers(2, Limits(slots=1)) as (one, two):
        assert one.slots.try_take(STANDARD)
        tasks = await queued(two.wait())
        # The slot is free for a moment, and its turn is known: a newcomer must not have it.
        one.slots.release(STANDARD)
        assert not one.slots.try_take(STANDARD)
        assert await done(tasks, 1) == [0]


async def test_more_slots_let_waiting_ones_in_at_once_and_fewer_end_nothing() -> None:
    async with workers(2, Limits(slots=1)) as (one, two):
        assert one.slots.try_take(STANDARD)
        tasks = await queued(two.wait(), two.wait(), one.wait())
        for worker in (one, two):
            worker.slots.configure(Limits(slots=3))
        assert await done(tasks, 2) == [0, 1]
        for worker in (one, two):
            worker.slots.configure(Limits(slots=1))
        for _ in range(2):
            two.slots.release(STANDARD)
        assert (one.slots.in_use, tasks[2].done()) == (2, False)
        one.slots.release(STANDARD)
        assert await done(tasks, 3) == [0, 1, 2]


async def test_the_queue_is_bounded_over_all_workers() -> None:
    async with workers(2, Limits(slots=1, queue=2, retry_after_s=7)) as (one, two):
        assert one.slots.try_take(STANDARD)
        tasks = await queued(one.wait(), two.wait())
        with pytest.raises(ApiError) as caught:
            await two.wait()
        assert (caught.value.http_status, caught.value.code) == (429, "RUNTIME_QUEUE_FULL")
        assert caught.value.retry_after_s == 7 and one.slots.in_use == 3
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert one.slots.in_use == 1


async def test_a_queue_of_nothing_serves_what_fits_and_refuses_the_rest() -> None:
    async with workers(1, Limits(slots=1, queue=0)) as (one,):
        assert one.slots.try_take(STANDARD)
        with pytest.raises(ApiError):
            await one.wait()


async def test_who_waits_too_long_hears_so_and_is_gone() -> None:
    async with workers(1, Limits(slots=1, queue_timeout_s=0.02)) as (one,):
        assert one.slots.try_take(STANDARD)
        with pytest.raises(ApiError) as caught:
            await one.wait()
        assert (caught.value.http_status, caught.value.code) == (429, "RUNTIME_QUEUE_TIMEOUT")
        assert one.slots.in_use == 1


async def test_a_client_that_left_is_gone_at_once_and_its_place_too() -> None:
    async with workers(2, Limits(slots=1)) as (one, two):
        assert one.slots.try_take(STANDARD)
        tasks = await queued(two.wait(), one.wait())
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        assert one.slots.in_use == 2
        one.slots.release(STANDARD)
        assert await done(tasks, 2) == [0, 1] and not tasks[1].cancelled()


async def test_a_slot_given_to_a_client_in_the_moment_that_it_leaves_is_free_again() -> None:
    async with workers(1, Limits(slots=1)) as (one,):
        assert one.slots.try_take(STANDARD)
        tasks = await queued(one.wait())
        one.slots.release(STANDARD)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert one.slots.in_use == 0


async def test_the_death_of_a_worker_frees_its_slots_and_its_place_in_the_queue() -> None:
    async with workers(2, Limits(slots=1)) as (one, two):
        assert two.slots.try_take(STANDARD)
        dead = await queued(two.wait())
        tasks = await queued(one.wait())
        one.seat.board.clear_column(two.seat.column)
        assert await done(tasks, 1) == [0] and not dead[0].done()
        dead[0].cancel()
        await asyncio.gather(*dead, return_exceptions=True)


async def test_a_worker_that_does_not_answer_keeps_a_slot_from_nobody_for_long() -> None:
    async with workers(3, Limits(slots=1)) as (one, two, three):
        # The second is stopped in the middle of its life: its place in the queue stands, and it takes no slot.
        row = two.seat.row("t")
        row.put(Cell.COUNTS, WAITER)
        row.put(Cell.OLDEST_STANDARD, 1)
        asyncio.get_running_loop().remove_reader(two.seat.waker)
        tasks = await queued(one.wait(), three.wait())
        async with asyncio.timeout(STUCK_S + MOMENT_S):
            assert await done(tasks, 1) == [0]
        assert not tasks[1].done()
        one.slots.release(STANDARD)
        assert await done(tasks, 2) == [0, 1]


async def test_everybody_is_sent_to_look_again() -> None:
    async with workers(1, Limits(slots=1)) as (one,):
        assert one.slots.try_take(STANDARD)
        waiting = asyncio.get_running_loop().create_task(one.slots.wait(STANDARD, "m"))
        await asyncio.sleep(0)
        one.slots.look_again()
        assert (await waiting, one.slots.in_use) == (None, 1)


async def test_reserved_slots_are_for_interactive_requests_of_any_worker() -> None:
    async with workers(2, Limits(slots=2, reserved=1)) as (one, two):
        assert one.slots.try_take(STANDARD) and not two.slots.try_take(STANDARD)
        tasks = await queued(two.wait(), one.wait(INTERACTIVE))
        assert await done(tasks, 1) == [1]


async def test_at_most_four_in_a_row_overtake_over_all_workers() -> None:
    async with workers(2, Limits(slots=1, queue=50)) as (one, two):
        assert one.slots.try_take(STANDARD)
        standard = await queued(*(worker.wait() for worker in (one, two, one)))
        interactive = await queued(*(worker.wait(INTERACTIVE) for worker in (one, two) * 5))
        tasks, order, holder, unit = [*standard, *interactive], "", one.slots, STANDARD
        seen: set[int] = set()
        for number in range(len(tasks)):
            holder.release(unit)
            now = await done(tasks, number + 1)
            (index,) = set(now) - seen
            seen.add(index)
            holder, unit = tasks[index].result(), STANDARD if index < len(standard) else INTERACTIVE
            order += "s" if index < len(standard) else "i"
        assert order == "iiiisiiiisiis"


async def test_who_may_be_served_elsewhere_goes_where_a_slot_is_free() -> None:
    async with workers(1, Limits(slots=1)) as (one,):
        other = Slots(one.seat.row("other"), SystemClock())
        assert one.slots.try_take(STANDARD) and other.try_take(STANDARD)
        waiting = asyncio.get_running_loop().create_task(one.slots.wait(STANDARD, "m", [other]))
        await asyncio.sleep(0)
        other.release(STANDARD)
        assert await waiting is other
        assert (one.slots.in_use, other.in_use) == (1, 1)


class House:
    """Workers at one board and the requests that they have, told what happens step by step."""

    def __init__(self, found: list[Worker]) -> None:
        self.workers = found
        self.holders: list[tuple[Worker, int]] = []
        self.waiters: list[tuple[Worker, int, asyncio.Task[Slots]]] = []

    async def step(self, kind: str, number: int, unit: int) -> None:
        worker = self.workers[number % len(self.workers)]
        if kind == "try" and worker.slots.try_take(unit):
            self.holders.append((worker, unit))
        elif kind == "wait":
            self.waiters.append((worker, unit, asyncio.get_running_loop().create_task(worker.wait(unit))))
        if kind in ("release", "both at once") and self.holders:
            holder, held = self.holders.pop(number % len(self.holders))
            holder.slots.release(held)
        if kind in ("leave", "both at once") and self.waiters:
            self.waiters[number % len(self.waiters)][2].cancel()
        if kind == "look":
            worker.slots.look_again()
        elif kind == "die":
            await self._kill(worker)
        # Three turns: a task begins, waits for its future, and hears of it.
        for _ in range(3):
            await asyncio.sleep(0)
        self._settle()

    async def _kill(self, worker: Worker) -> None:
        dead = [task for owner, _, task in self.waiters if owner is worker]
        self._settle()
        self.holders = [(owner, unit) for owner, unit in self.holders if owner is not worker]
        self.waiters = [each for each in self.waiters if each[0] is not worker]
        seat, limits = worker.seat, worker.slots.limits
        for task in dead:
            task.cancel()
        await asyncio.gather(*dead, return_exceptions=True)
        worker.slots.close()
        seat.board.clear_column(seat.column)
        worker.slots = Slots(seat.row("t"), SystemClock())
        worker.slots.configure(limits)

    def _settle(self) -> None:
        for each in [each for each in self.waiters if each[2].done()]:
            self.waiters.remove(each)
            worker, unit, task = each
            if not task.cancelled() and task.exception() is None:
                self.holders.append((worker, unit))

    def check(self, limits: Limits) -> None:
        standard = sum(unit == STANDARD for _, unit in self.holders)
        assert len(self.holders) <= limits.slots and standard <= limits.slots - limits.reserved
        assert len(self.holders) + len(self.waiters) >= self.workers[0].slots.in_use

    async def empty(self) -> None:
        """Everybody is served and goes: nobody may be forgotten, and nothing may stay behind."""
        async with asyncio.timeout(SOON_S):
            while self.waiters or self.holders:
                while self.holders:
                    holder, held = self.holders.pop()
                    holder.slots.release(held)
                if self.waiters:
                    await asyncio.wait([task for _, _, task in self.waiters], return_when=asyncio.FIRST_COMPLETED)
                self._settle()
        assert all(worker.slots.in_use == 0 for worker in self.workers)


@settings(max_examples=150, deadline=None)
@given(
    slots=st.integers(1, 4),
    reserved=st.integers(0, 2),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["try", "wait", "wait", "release", "release", "leave", "both at once", "look", "die"]),
            st.integers(0, 11),
            st.sampled_from([STANDARD, INTERACTIVE]),
        ),
        min_size=20,
        max_size=60,
    ),
)
def test_whatever_happens_the_limit_holds_nobody_is_forgotten_and_nothing_stays_behind(
    slots: int, reserved: int, steps: list[tuple[str, int, int]]
) -> None:
    async def go() -> None:
        limits = Limits(slots, min(reserved, slots - 1), queue=100)
        async with workers(3, limits) as found:
            house = House(found)
            for step in steps:
                await house.step(*step)
                house.check(limits)
            await house.empty()

    asyncio.run(go())
