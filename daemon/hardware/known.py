"""Whether enough of the hardware has been read to place runtimes by it. Pure."""

from core.hardware import HardwareState

_NVIDIA = "10de"


def cards_are_known(state: HardwareState) -> bool:
    """Whether the cards, or that there are none, have been found out.

    A machine with an NVIDIA device is known once nvidia-smi answered or failed, and the kernel's log is followed (an
    error of the past may keep a card out). A machine without one is known as soon as udev listed its devices.
    """
    sources = {source.name: source for source in state.sources}

    def is_settled(name: str) -> bool:
        source = sources.get(name)
        return source is not None and (source.age_s is not None or source.error is not None)

    if not is_settled("udev"):
        return False
    if not any(device.vendor_id == _NVIDIA for device in state.devices):
        return True
    return is_settled("nvidia-smi") and is_settled("kernel-log")
