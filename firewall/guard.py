"""Keeps the table as it is wanted while the program runs: installs it, follows the policy, mends what others do.

It never gives up and never gets in the way: where the table cannot be kept it says `unguarded` and why, and tries
again. Looks come from three sides: the program pokes it (another policy), the kernel has news (somebody changed a
table), and from time to time. Somebody who undoes every repair is met with growing pauses, not with a race.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from core.clock import Clock
from core.errors import LlmgwError
from core.tasks import Backoff
from firewall.kernel import FirewallRefused, Kernel
from firewall.news import watch
from firewall.normalize import keep_counts, read_counts
from firewall.plan import Plan, Step, make_plan
from firewall.policy import Policy
from firewall.ruleset import Object

_LOOK_S = 15.0
_SETTLE_S = 0.05
"""Several news of one transaction are one look."""

_REST = 9
"""Looks take a tenth of the time at most: other programs may change large tables of theirs all day."""

_CALM_S = 60.0
"""So long after the last repair the next one is made without a pause again."""

_DIFFERENCE_LINES = 40


class Protection(StrEnum):
    """Whether the machine is guarded."""

    GUARDED = "guarded"
    UNGUARDED = "unguarded"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Standing:
    """What the guard knows of its table."""

    protection: Protection
    reason: LlmgwError | None = None
    """Why the table could not be kept."""
    since: str = ""
    mended: int = 0
    """How often something that others changed was put right."""
    drift: tuple[str, ...] = ()
    """What they had changed the last time: `-` was there, `+` was missing."""
    drift_at: str = ""


@dataclass(frozen=True, slots=True)
class News:
    """Something that the guard did or found out."""

    standing: Standing
    plan: Plan
    """What was done to the table."""
    is_repair: bool
    """Whether it was done because somebody else had changed the table."""


class Guard:
    """One table's keeper."""

    def __init__(
        self,
        kernel: Kernel,
        wish: Callable[[], Policy | None],
        *,
        tell: Callable[[News], None],
        clock: Clock,
    ) -> None:
        """`wish` says what is wanted now, None for no table; `tell` hears of every change of the table or standing."""
        self._kernel = kernel
        self._wish = wish
        self._tell = tell
        self._clock = clock
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()
        self._pause = Backoff(0.1, 30.0)
        self._mended_s = 0.0
        self._kept: Policy | None = None
        """What the table said when we left it; None before that, and when there is to be none."""
        self._counts: dict[str, tuple[int, int]] = {}
        self.standing = Standing(Protection.UNGUARDED)
        self.present: list[Object] | None = None
        """The table as it was read last."""

    def poke(self) -> None:
        """What is wanted may have changed: look soon."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled. Leaving does not take the table away: engines run on without us."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_news())
            while True:
                self._wake.clear()
                before, began_s = self.standing.mended, self._clock.monotonic_s()
                await self.check()
                took_s = self._clock.monotonic_s() - began_s
                if self.standing.mended > before:
                    await asyncio.sleep(self._pause.next_s())
                elif self._clock.monotonic_s() - self._mended_s > _CALM_S:
                    self._pause.reset()
                await self._wait(max(_SETTLE_S, took_s * _REST))

    async def check(self) -> Standing:
        """Look at the table now, and make it what is wanted."""
        async with self._lock:
            try:
                await self._keep()
            except LlmgwError as error:
                self._fail(error)
        return self.standing

    async def _follow_news(self) -> None:
        try:
            await watch(self._wake.set)
        except LlmgwError:
            pass  # the looks from time to time remain, and say by themselves when nothing can be done here

    async def _wait(self, settle_s: float) -> None:
        try:
            async with asyncio.timeout(_LOOK_S):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(settle_s)

    async def _keep(self) -> None:
        policy = self._wish()
        await self._look()
        plan = make_plan(policy, self.present, self._counts)
        if plan.step is not Step.NOTHING:
            await self._carry_out(policy, plan)
        is_repair = plan.step is not Step.NOTHING and policy is not None and policy == self._kept
        self._kept = policy
        self._settle(Protection.OFF if policy is None else Protection.GUARDED, None, plan, is_repair=is_repair)

    async def _carry_out(self, policy: Policy | None, plan: Plan) -> None:
        """Raises: FirewallRefused when the table is not what it should be afterwards."""
        try:
            await self._kernel.apply(plan.commands)
        except FirewallRefused:
            # Some kernels refuse new elements that overlap those going in the same transaction: then all of it anew.
            if plan.step is not Step.ELEMENTS:
                raise
            await self._kernel.apply(make_plan(policy, None, self._counts).commands)
        await self._look()
        left = make_plan(policy, self.present, self._counts)
        if left.step is not Step.NOTHING:
            raise FirewallRefused(f"the table is not what was installed: {'; '.join(left.difference[:4])}")

    async def _look(self) -> None:
        self.present = await self._kernel.read()
        self._counts = keep_counts(self._counts, read_counts(self.present or ()))

    def _fail(self, error: LlmgwError) -> None:
        is_wanted = self._wish() is not None
        self.present = None
        self._kept = None
        self._settle(Protection.UNGUARDED if is_wanted else Protection.OFF, error, Plan(Step.NOTHING), is_repair=False)

    def _settle(self, protection: Protection, reason: LlmgwError | None, plan: Plan, *, is_repair: bool) -> None:
        old, now = self.standing, datetime.now(UTC).isoformat(timespec="seconds")
        since = old.since if old.since and old.protection is protection else now
        new = replace(old, protection=protection, reason=reason, since=since)
        if is_repair:
            self._mended_s = self._clock.monotonic_s()
            new = replace(new, mended=old.mended + 1, drift=plan.difference[:_DIFFERENCE_LINES], drift_at=now)
        self.standing = new
        is_news = (old.protection, _words(old)) != (protection, _words(new)) or not old.since
        if is_news or plan.step is not Step.NOTHING:
            self._tell(News(new, plan, is_repair))


def _words(standing: Standing) -> str:
    return standing.reason.message if standing.reason is not None else ""
