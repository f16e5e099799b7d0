"""Devices as udev knows them, and the news when one comes or goes. The one file that imports pyudev.

`read_pci_devices` blocks for some milliseconds and belongs in a thread. `watch` needs none: the monitor is a file
descriptor on the loop. It listens to udev's own events, and to the kernel's where no udevd runs (containers).
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pyudev

from core.errors import DependencyError
from core.hardware import PciDevice

SUBSYSTEMS = ("pci", "infiniband", "block", "net", "drm", "nvidia")
_DISPLAY, _NETWORK = 0x03, 0x02
_UDEVD = Path("/run/udev/control")


class UdevUnavailable(DependencyError):
    """libudev is missing, or the kernel gives no monitor to us."""

    code = "udev_unavailable"


def read_pci_devices() -> tuple[PciDevice, ...]:
    """Display, 3D and network controllers. Raises: UdevUnavailable."""
    try:
        devices = pyudev.Context().list_devices(subsystem="pci")
        found = [_pci_device(device) for device in devices]
    except (ImportError, OSError) as error:
        raise UdevUnavailable(f"devices cannot be listed: {error}") from error
    return tuple(sorted((device for device in found if device is not None), key=lambda device: device.address))


def _pci_device(device: pyudev.Device) -> PciDevice | None:
    number = _hexadecimal(_attribute(device, "class"))
    if number is None or number >> 16 not in (_DISPLAY, _NETWORK):
        return None
    node = _attribute(device, "numa_node")
    return PciDevice(
        address=device.sys_name,
        vendor_id=_attribute(device, "vendor").removeprefix("0x"),
        device_id=_attribute(device, "device").removeprefix("0x"),
        pci_class=f"{number >> 8:04x}",
        vendor=device.properties.get("ID_VENDOR_FROM_DATABASE") or "",
        model=device.properties.get("ID_MODEL_FROM_DATABASE") or "",
        driver=device.driver or "",
        numa_node=int(node) if node.isdecimal() else None,
    )


def _attribute(device: pyudev.Device, name: str) -> str:
    try:
        return device.attributes.asstring(name).strip()
    except (KeyError, UnicodeDecodeError):
        return ""  # the device went away while we looked, or has no such attribute


def _hexadecimal(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


async def watch(on_change: Callable[[frozenset[str]], None]) -> None:
    """Call `on_change` with the subsystems of what changed, until cancelled. Raises: UdevUnavailable."""
    try:
        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="udev" if _UDEVD.exists() else "kernel")
        for subsystem in SUBSYSTEMS:
            monitor.filter_by(subsystem)
        monitor.start()
    except (ImportError, OSError) as error:
        raise UdevUnavailable(f"device events cannot be followed: {error}") from error
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def drain() -> None:
        try:
            on_change(_drain(monitor))
        except OSError as error:
            if not failed.done():
                failed.set_exception(UdevUnavailable(f"device events were lost: {error}"))

    loop = asyncio.get_running_loop()
    loop.add_reader(monitor.fileno(), drain)
    try:
        on_change(frozenset(SUBSYSTEMS))  # what came before the monitor listened
        await failed
    finally:
        loop.remove_reader(monitor.fileno())


def _drain(monitor: pyudev.Monitor) -> frozenset[str]:
    """Everything that is waiting. An overrun (ENOBUFS) lost events: then anything may have changed."""
    changed: set[str] = set()
    with contextlib.suppress(BlockingIOError):
        while (device := monitor.poll(timeout=0)) is not None:
            changed.add(device.subsystem or "")
    return frozenset(changed)
