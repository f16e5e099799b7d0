"""A machine's PCI and InfiniBand devices, made of nothing: a umockdev testbed that a test changes by commands.

Runs in a test host with Debian's own Python. Programs that are started with `LD_PRELOAD` and `UMOCKDEV_DIR` of the
file `environment` see these devices in /sys and in udev, instead of the real ones, and hear when they come and go.

    python3 devices.py /run/devices       says READY=1 to systemd, then reads /run/devices/commands:
    add-card PCI | remove-card PCI | add-adapter NAME | set-port NAME STATE PHYSICAL_STATE
"""

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import gi

gi.require_version("UMockdev", "1.0")
from gi.repository import UMockdev  # noqa: E402 - the version must be chosen first

_PORT = (
    *("state", "4: ACTIVE", "phys_state", "5: LinkUp", "rate", "400 Gb/sec (4X NDR)"),
    *("link_layer", "InfiniBand", "lid", "0x1", "sm_lid", "0x1"),
)


class Devices:
    """The testbed."""

    def __init__(self) -> None:
        self.testbed = UMockdev.Testbed.new()

    def obey(self, command: str, *words: str) -> None:
        orders: dict[str, Callable[..., None]] = {
            "add-card": self.add_card,
            "remove-card": self.remove_card,
            "add-adapter": self.add_adapter,
            "set-port": self.set_port,
        }
        orders[command](*words)

    def add_card(self, address: str) -> None:
        attributes = ["class", "0x030200", "vendor", "0x10de", "device", "0x2684", "numa_node", "0"]
        properties = ["PCI_SLOT_NAME", address, "ID_MODEL_FROM_DATABASE", "AD102 [GeForce RTX 4090]"]
        path = self.testbed.add_device("pci", address, None, attributes, properties)
        self.testbed.set_attribute_link(path, "driver", "../../bus/pci/drivers/nvidia")
        self.testbed.uevent(path, "add")

    def remove_card(self, address: str) -> None:
        path = f"/sys/devices/{address}"
        self.testbed.uevent(path, "remove")
        self.testbed.remove_device(path)

    def add_adapter(self, name: str) -> None:
        attributes = ["node_guid", "b83f:d203:00aa:1234", "fw_ver", "28.39.1002", "board_id", "MT_0000000838"]
        path = self.testbed.add_device("infiniband", name, None, attributes, [])
        for key, value in zip(_PORT[::2], _PORT[1::2], strict=True):
            self.testbed.set_attribute(path, f"ports/1/{key}", value)
        self.testbed.uevent(path, "add")

    def set_port(self, name: str, state: str, physical_state: str) -> None:
        """The kernel sends no event for it."""
        path = f"/sys/devices/{name}"
        self.testbed.set_attribute(path, "ports/1/state", state)
        self.testbed.set_attribute(path, "ports/1/phys_state", physical_state)


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(directory)  # where the testbed lies; it must be seen by sandboxed programs
    devices = Devices()
    commands = directory / "commands"
    os.mkfifo(commands)
    root = devices.testbed.get_root_dir()
    (directory / "environment").write_text(f"LD_PRELOAD=libumockdev-preload.so.0\nUMOCKDEV_DIR={root}\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.connect(os.environ["NOTIFY_SOCKET"])
        notify.send(b"READY=1")
    while True:
        with commands.open() as orders:
            for line in orders:
                devices.obey(*line.rstrip("\n").split("\t"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
