"""When the hardware is known well enough to place runtimes by it."""

import pytest

from core.hardware import HardwareState, PciDevice, Problem, Source
from daemon.hardware.known import cards_are_known

CARD = PciDevice(address="0000:01:00.0", vendor_id="10de", device_id="2684", pci_class="0300")
NIC = PciDevice(address="0000:02:00.0", vendor_id="8086", device_id="1", pci_class="0200")
BROKEN = Problem(code="nvidia_smi_timed_out", message="x")


@pytest.mark.parametrize(
    ("devices", "sources", "expected"),
    [
        ([], [], False),
        ([], [Source(name="udev")], False),
        ([NIC], [Source(name="udev", age_s=0.1)], True),
        ([], [Source(name="udev", error=BROKEN)], True),
        ([CARD], [Source(name="udev", age_s=0.1)], False),
        ([CARD], [Source(name="udev", age_s=0.1), Source(name="nvidia-smi", age_s=0.1)], False),
        ([CARD], [Source(name=n, age_s=0.1) for n in ("udev", "nvidia-smi", "kernel-log")], True),
        ([CARD], [Source(name="udev", age_s=0.1), Source(name="nvidia-smi", error=BROKEN),
                  Source(name="kernel-log", age_s=0.0)], True),
    ],
)  # fmt: skip
def test_known(devices: list[PciDevice], sources: list[Source], expected: bool) -> None:
    assert cards_are_known(HardwareState(devices=devices, sources=sources)) is expected
