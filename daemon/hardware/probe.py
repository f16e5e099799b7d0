"""One reading of each kind, folded into the inventory. The sampler calls these by its clock, the doctor once.

Each method reads one source and returns the inventory with it; a source that fails leaves what was known in place,
with the reason beside it. Nothing here decides when to read.
"""

import os
import pwd
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from core.clock import Clock
from core.errors import LlmgwError
from core.hardware import Adapter, Cpu, Disk, Link, PciDevice, Problem
from daemon.hardware import cpu, disks, driver, infiniband, links, memory, udev
from daemon.hardware.blocking import Blocking
from daemon.hardware.inventory import Inventory, Reading, add_failure, add_report
from daemon.hardware.nvidia_reader import NvidiaFailed, NvidiaReader

T = TypeVar("T")
Owners = Callable[[], Awaitable[Mapping[int, str]]]
"""Asks for the processes of our units: pid -> runtime."""


async def _no_owners() -> Mapping[int, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look. All of it can be somewhere else in a test."""

    nvidia_smi: str = "nvidia-smi"
    nvidia_smi_timeout_s: float = 10.0
    ib_root: Path = Path("/sys/class/infiniband")
    disks: tuple[tuple[str, Path], ...] = ()
    """Purpose and folder."""
    proc: Path = Path("/proc")


class Probe:
    """Reads one machine; holds the inventory."""

    def __init__(self, places: Places, clock: Clock, owners: Owners = _no_owners) -> None:
        """Without `owners` no process on a card is anybody's: so looks who is no daemon."""
        self.inventory = Inventory()
        self._clock = clock
        self._owners = owners
        self._cpu_times: cpu.CpuTimes | None = None
        self._user_names: dict[int, str] = {}
        self._devices: Blocking[tuple[PciDevice, ...]] = Blocking("devices", udev.read_pci_devices)
        self._links: Blocking[tuple[Link, ...]] = Blocking("links", links.read_links)
        self._nvidia = NvidiaReader(places.nvidia_smi, places.nvidia_smi_timeout_s, places.proc)
        self.use_places(places)

    def use_places(self, places: Places) -> None:
        """Look elsewhere from now on."""
        self._places = places
        self._nvidia.use(places.nvidia_smi, places.nvidia_smi_timeout_s)
        self._adapters: Blocking[tuple[Adapter, ...]] = Blocking(
            "infiniband", lambda: infiniband.read_adapters(places.ib_root)
        )
        self._disks: Blocking[tuple[Disk, ...]] = Blocking("disks", lambda: disks.read_disks(dict(places.disks)))

    async def read_all(self) -> None:
        """Everything once."""
        await self.read_devices()
        await self.read_quick()
        await self.read_slow()
        await self.read_cards(with_details=True)

    async def read_quick(self) -> None:
        """What costs next to nothing: processors, memory, InfiniBand ports."""
        proc, now_s = self._places.proc, self._clock.monotonic_s()
        inventory = replace(self.inventory, memory=Reading(memory.read_memory(proc / "meminfo"), now_s))
        times = cpu.read_times(proc / "stat")
        if inventory.cpu is not None and inventory.cpu.value is not None:
            busy = cpu.utilization(self._cpu_times, times)
            seen: Cpu = msgspec.structs.replace(inventory.cpu.value, utilization=busy)
            inventory = replace(inventory, cpu=Reading(seen, now_s))
        self._cpu_times = times
        self.inventory = inventory
        await self.read_infiniband()

    async def read_infiniband(self) -> None:
        if not self._places.ib_root.is_dir():
            self.inventory = replace(self.inventory, adapters=Reading((), self._clock.monotonic_s()))
        elif (found := await self._read("infiniband", self._adapters)) is not None:
            self.inventory = replace(self.inventory, adapters=Reading(found, self._clock.monotonic_s()))

    async def read_devices(self) -> None:
        """What hangs on the PCI bus, and the driver's module."""
        now_s = self._clock.monotonic_s()
        version = self._places.proc / "driver/nvidia/version"
        self.inventory = replace(self.inventory, driver=Reading(driver.read_driver(version), now_s))
        if (found := await self._read("udev", self._devices)) is not None:
            self.inventory = replace(self.inventory, devices=Reading(found, self._clock.monotonic_s()))

    async def read_slow(self) -> None:
        """What seldom changes: processors' features, NUMA, disks, links."""
        now_s = self._clock.monotonic_s()
        seen = cpu.read_cpu(self._places.proc / "cpuinfo")
        if seen is not None:
            before = self.inventory.cpu.value if self.inventory.cpu else None
            usable = len(os.sched_getaffinity(0))
            seen = msgspec.structs.replace(seen, usable_cpus=usable, utilization=before.utilization if before else None)
        self.inventory = replace(self.inventory, cpu=Reading(seen, now_s), numa=cpu.read_numa())
        await self.read_disks()
        await self.read_links()

    async def read_disks(self) -> None:
        if (found := await self._read("disks", self._disks)) is not None:
            self.inventory = replace(self.inventory, disks=Reading(found, self._clock.monotonic_s()))

    async def read_links(self) -> None:
        if (found := await self._read("links", self._links)) is not None:
            self.inventory = replace(self.inventory, links=Reading(found, self._clock.monotonic_s()))

    def wants_cards(self) -> bool:
        """Whether asking nvidia-smi makes sense on this machine."""
        return self.inventory.has_nvidia() or self._nvidia.is_installed()

    async def read_cards(self, *, with_details: bool) -> None:
        """Ask nvidia-smi; when it names a lost card, ask again for the others."""
        if not self.wants_cards():
            return
        try:
            if with_details:
                details = await self._nvidia.read_details()
                self.inventory = replace(self.inventory, details=details)
            report = await self._nvidia.read_report()
        except NvidiaFailed as error:
            self.inventory = add_failure(self.inventory, error.problem, error.lost_card)
            await self._read_others()
        else:
            self.inventory = add_report(self.inventory, report, self._clock.monotonic_s())
        await self._read_owners()

    async def _read_others(self) -> None:
        inventory = self.inventory
        rest = [uuid for uuid, seen in inventory.reported.items() if seen.value.card.pci not in inventory.lost]
        if not inventory.lost or not rest:
            return
        try:
            report = await self._nvidia.read_report(rest)
        except NvidiaFailed:
            return  # why it fails is known already; the cards only get older
        self.inventory = add_report(self.inventory, report, self._clock.monotonic_s(), partial=True)

    async def _read_owners(self) -> None:
        """Whose processes are on the cards. When our units cannot be asked, what was known stays."""
        pids = {entry.process.pid for seen in self.inventory.reported.values() for entry in seen.value.processes}
        if not pids:
            return
        users = {pid: name for pid in pids if (name := self._user_of(pid))}
        try:
            owners = await self._owners()
        except LlmgwError:
            owners = self.inventory.owners
        self.inventory = replace(self.inventory, owners=owners, users=users)

    def _user_of(self, pid: int) -> str:
        try:
            uid = (self._places.proc / str(pid)).stat().st_uid
        except OSError:
            return ""
        if uid not in self._user_names:
            try:
                self._user_names[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:
                self._user_names[uid] = str(uid)
        return self._user_names[uid]

    async def _read(self, source: str, call: Blocking[T]) -> T | None:
        """The value; None when it could not be read, which is then an error of the source."""
        try:
            value = await call()
        except LlmgwError as error:
            self.note_error(source, error)
            return None
        self.note_error(source, None)
        return value

    def note_error(self, source: str, error: LlmgwError | None) -> None:
        """Why a source cannot be read now; None: it can."""
        errors = {name: problem for name, problem in self.inventory.errors.items() if name != source}
        if error is not None:
            errors[source] = Problem(code=error.code, message=error.message, hint=error.hint)
        self.inventory = replace(self.inventory, errors=errors)
