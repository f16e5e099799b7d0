"""Keeps the inventory young: by the clock, by udev's events, and by the kernel's log. One per daemon.

`run` is owned by the daemon's task group and never ends by itself. Each kind of reading has its own loop, so that a
hanging `nvidia-smi` or a dead network mount makes only its own values old. Requests are served from what is known;
none waits for hardware unless it asks to (`refresh`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from core.clock import Clock
from core.errors import LlmgwError, NotFoundError
from core.hardware import Card, ClearResult, HardwareState, Problem
from core.log import EventLogger
from core.tasks import Backoff, supervise
from daemon.hardware import kernel_log, udev
from daemon.hardware.health import CardXids
from daemon.hardware.inventory import Rules, build_state
from daemon.hardware.marks import Marks, read_boot_id, read_marks, write_marks
from daemon.hardware.probe import Owners, Places, Probe
from daemon.hardware.xid import parse_kernel_line

_QUICK_S = 1.0
_SLOW_S = 60.0
_GAP_S = 0.25
"""Between two readings of cards that events ask for: a burst of events is one reading."""

_LONG_GAP_S = 1.0
"""The same for what containers make and remove by the hundred: network links and block devices."""


class CardUnknown(NotFoundError):
    """No card of that name here."""

    code = "card_unknown"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the config says of the hardware."""

    places: Places
    rules: Rules = Rules()
    cards_every_s: float = 5.0
    kernel_log: Path | None = None
    marks: Path = Path("hardware-cleared.json")


class _Beat:
    """Wakes a loop by the clock, or earlier when something happened."""

    def __init__(self, gap_s: float = _GAP_S) -> None:
        self._gap_s = gap_s
        self._happened = asyncio.Event()

    def now(self) -> None:
        self._happened.set()

    async def next(self, every_s: float) -> bool:
        """Wait; whether an event came before the time."""
        await asyncio.sleep(self._gap_s)
        try:
            async with asyncio.timeout(every_s - self._gap_s):
                await self._happened.wait()
        except TimeoutError:
            return False
        self._happened.clear()
        return True


class Sampler:
    """See the module."""

    def __init__(self, settings: Settings, *, owners: Owners, clock: Clock, log: EventLogger) -> None:
        self._settings = settings
        self._clock = clock
        self._log = log
        self._probe = Probe(settings.places, clock, owners)
        self._marks = read_marks(settings.marks, read_boot_id())
        self._probe.inventory = replace(self._probe.inventory, acknowledged_ecc=self._marks.ecc)
        self._cards, self._devices = _Beat(), _Beat()
        self._slow, self._links = _Beat(_LONG_GAP_S), _Beat(_LONG_GAP_S)
        self._told: set[str] = set()
        self._cards_seen = asyncio.Event()
        """There is something that the driver may speak of: without it nobody needs to follow the kernel's log."""

    def use_settings(self, settings: Settings) -> None:
        """Go on by a new config. The kernel's log is only chosen when the daemon starts."""
        if settings.places != self._settings.places:
            self._probe.use_places(settings.places)
        self._settings = settings
        self._cards.now()
        self._slow.now()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, run in (
                ("hardware-quick", self._quick_loop),
                ("hardware-devices", self._device_loop),
                ("hardware-cards", self._card_loop),
                ("hardware-slow", self._slow_loop),
                ("hardware-links", self._link_loop),
                ("hardware-events", self._follow_udev),
                ("hardware-kernel-log", self._follow_kernel),
            ):
                group.create_task(supervise(name, run, self._log))

    def state(self) -> HardwareState:
        """What is known now, with ages."""
        now_s = self._clock.monotonic_s()
        stamp = datetime.fromtimestamp(self._clock.wall_s(), UTC).isoformat(timespec="milliseconds")
        return build_state(self._probe.inventory, self._settings.rules, now_s, stamp)

    async def refresh(self) -> HardwareState:
        """Read everything now, then say what is known."""
        await self._probe.read_all()
        return self.state()

    async def refresh_cards(self) -> list[Card]:
        """Ask the driver now; cards that it does not tell of keep their older values, and their age."""
        await self._probe.read_cards(with_details=False)
        return self.state().cards

    def clear(self, name: str) -> ClearResult:
        """Forget past events of a card (`all`: of every one). Raises: CardUnknown, StorageError."""
        state = self.state()
        chosen = [card for card in state.cards if name in ("all", *_names(card)) and not card.parent]
        inventory = self._probe.inventory
        left = {uuid: card for uuid, card in inventory.gone.items() if name not in ("all", uuid, card.pci)}
        if not chosen and left == inventory.gone and name != "all":
            raise CardUnknown(f"there is no card {name}", hint="llmgw hardware shows index, UUID and address of each")
        gone = {uuid: card.pci for uuid, card in inventory.gone.items() if uuid not in left}
        addresses = {*(card.pci for card in chosen), *gone.values(), *(inventory.xids if name == "all" else ())}
        until = {pci: self._last_event(pci) for pci in addresses}
        marks = Marks(
            boot_id=self._marks.boot_id,
            events_until_s={**self._marks.events_until_s, **until},
            ecc={**self._marks.ecc, **{card.uuid: card.ecc_uncorrected or 0 for card in chosen if card.uuid}},
        )
        write_marks(self._settings.marks, marks)
        self._marks = marks
        self._probe.inventory = replace(
            inventory,
            gone=left,
            acknowledged_ecc=marks.ecc,
            xids={pci: xids for pci, xids in inventory.xids.items() if pci not in addresses},
        )
        after = {card.pci: card for card in self.state().cards if not card.parent}
        return ClearResult(
            cleared=[*(card.uuid or card.pci for card in chosen), *gone],
            remaining=[card for pci in addresses if (card := after.get(pci)) and any(p.blocks for p in card.problems)],
        )

    def _last_event(self, pci: str) -> float:
        """When the driver spoke of the card last; never before what was cleared already."""
        seen = self._probe.inventory.xids.get(pci, CardXids()).counts.values()
        return max([self._marks.events_until_s.get(pci, 0.0), *(entry.last_s or 0.0 for entry in seen)])

    # Loops

    async def _quick_loop(self) -> None:
        while True:
            await self._probe.read_quick()
            await asyncio.sleep(_QUICK_S)

    async def _device_loop(self) -> None:
        while True:
            before = self._probe.inventory.devices
            await self._probe.read_devices()
            self._note_cards()
            after = self._probe.inventory.devices
            if before is not None and after is not None and before.value != after.value:
                self._tell_devices({d.address for d in before.value}, {d.address for d in after.value})
                self._cards.now()
            await self._devices.next(_SLOW_S)

    async def _card_loop(self) -> None:
        details_s = float("-inf")
        event = True
        while True:
            now_s = self._clock.monotonic_s()
            with_details = event or now_s - details_s >= _SLOW_S
            await self._probe.read_cards(with_details=with_details)
            if with_details:
                details_s = now_s
            self._note_cards()
            self._tell_problems()
            event = await self._cards.next(self._settings.cards_every_s)

    async def _slow_loop(self) -> None:
        while True:
            await self._probe.read_slow()
            await self._slow.next(_SLOW_S)

    async def _link_loop(self) -> None:
        while True:
            await self._links.next(_SLOW_S)
            await self._probe.read_links()

    async def _follow_udev(self) -> None:
        await self._keep_following("udev", lambda: udev.watch(self._on_devices))

    def _on_devices(self, subsystems: frozenset[str]) -> None:
        if subsystems & {"pci", "drm", "nvidia"}:
            self._devices.now()
            self._cards.now()
        if "block" in subsystems:
            self._slow.now()
        if subsystems & {"net", "infiniband"}:
            self._links.now()

    async def _follow_kernel(self) -> None:
        await self._keep_following("kernel-log", self._follow_kernel_once)

    def _note_cards(self) -> None:
        if self._probe.inventory.has_nvidia():
            self._cards_seen.set()

    async def _follow_kernel_once(self) -> None:
        await self._cards_seen.wait()
        # The log is read from its beginning each time, so what was counted before would count twice.
        self._probe.inventory = replace(self._probe.inventory, xids={}, kernel_log_followed=True)
        try:
            await kernel_log.follow(self._settings.kernel_log, self._on_kernel_line)
        finally:
            self._probe.inventory = replace(self._probe.inventory, kernel_log_followed=False)

    async def _keep_following(self, source: str, follow: Callable[[], Awaitable[None]]) -> None:
        """A source that cannot be followed is an error of that source, told once however often it is tried again."""
        backoff = Backoff(1.0, 60.0)
        while True:
            try:
                await follow()
            except LlmgwError as error:
                self._probe.note_error(source, error)
            await asyncio.sleep(backoff.next_s())

    def _on_kernel_line(self, line: str) -> None:
        if "kernel-log" in self._probe.inventory.errors:
            self._probe.note_error("kernel-log", None)
        event = parse_kernel_line(line)
        if event is None or event.at_s <= self._marks.events_until_s.get(event.pci, -1.0):
            return
        inventory = self._probe.inventory
        before = inventory.xids.get(event.pci, CardXids())
        self._probe.inventory = replace(inventory, xids={**inventory.xids, event.pci: before.add(event)})
        if event.xid not in before.counts:
            self._log.warning("gpu_xid", pci=event.pci, xid=event.xid, text=event.text)

    # What an operator finds in the log

    def _tell_devices(self, before: set[str], after: set[str]) -> None:
        for address in sorted(after - before):
            self._log.info("device_appeared", pci=address)
        for address in sorted(before - after):
            self._log.warning("device_gone", pci=address)

    def _tell_problems(self) -> None:
        """Each problem once when it begins, and once when it has ended."""
        state = self.state()
        current = {f"node {problem.code}": problem for problem in state.problems}
        for card in state.cards:
            current |= {f"{card.uuid or card.pci} {problem.code}": problem for problem in card.problems}
        for key in sorted(current.keys() - self._told):
            problem: Problem = current[key]
            self._log.warning("hardware_problem", of=key.split()[0], code=problem.code, problem=problem.message)
        for key in sorted(self._told - current.keys()):
            self._log.info("hardware_problem_ended", of=key.split()[0], code=key.split()[1])
        self._told = set(current)


def _names(card: Card) -> tuple[str, ...]:
    return tuple(name for name in (card.uuid, card.pci, "" if card.index is None else str(card.index)) if name)
