"""Why `nvidia-smi` does not answer, as a problem with its remedy. Pure.

Its exit status is NVML's error number and its words go to standard output; old drivers differ in both, so the words
decide and the number only helps where they are unknown.
"""

import re
from typing import NamedTuple

from core.hardware import Problem
from core.process import last_lines

_LOST_CARD = re.compile(
    r"(?:device handle for GPU)?\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])", re.IGNORECASE
)


class _Kind(NamedTuple):
    """One way in which it fails."""

    words: str
    """A pattern in what it says."""
    status: int
    code: str
    message: str
    hint: str


_KINDS = (
    _Kind(
        r"driver/library version mismatch", 18, "nvidia_library_mismatch",
        "the NVIDIA libraries are newer than the loaded kernel module; engines that run go on, none can start",
        "reboot; then `apt-mark hold` the driver's packages, so that unattended upgrades leave them alone",
    ),
    _Kind(
        r"couldn't communicate with the nvidia driver|driver not loaded", 9, "nvidia_driver_not_loaded",
        "the NVIDIA kernel module is not loaded",
        "modprobe nvidia, and `dkms status` when that fails; journalctl -k says why",
    ),
    _Kind(
        r"gpu is lost|fallen off the bus", 15, "nvidia_card_lost",
        "a card has fallen off the bus",
        "reboot; if it happens again, look at power, seating and temperature",
    ),
    _Kind(
        r"no devices were found", 6, "nvidia_no_devices",
        "the driver finds no card",
        "journalctl -k | grep NVRM; a card that needs another driver branch is named there",
    ),
    _Kind(
        r"insufficient permissions", 4, "nvidia_no_permission",
        "nvidia-smi may not open the cards",
        "ls -l /dev/nvidia*; the daemon runs as root where the package is installed",
    ),
    _Kind(
        r"is not a valid field", 2, "nvidia_smi_too_old",
        "nvidia-smi does not know what it is asked",
        "install a driver of branch 525 or newer",
    ),
    _Kind(
        r"libnvidia-ml\.so|nvml: .*not found|shared library not found", 12, "nvidia_library_missing",
        "nvidia-smi does not find the driver's library",
        "install the package with libnvidia-ml.so.1 of the driver's version",
    ),
)  # fmt: skip


def judge_failure(exit_status: int, output: bytes) -> Problem:
    """What a run that did not end with 0 means for the node."""
    said = last_lines(output, 3)
    by_words = (kind for kind in _KINDS if re.search(kind.words, said, re.IGNORECASE))
    by_status = (kind for kind in _KINDS if exit_status == kind.status)
    ended = f"status {exit_status}" if exit_status >= 0 else f"signal {-exit_status}"
    kind = next(by_words, None) or next(by_status, None)
    if kind is None:
        message = f"nvidia-smi ended with {ended}{': ' + said if said else ''}"
        return _judged("nvidia_smi_failed", message, "run it by hand; journalctl -k | grep NVRM")
    return _judged(kind.code, f"{kind.message} ({said or ended})", kind.hint)


def _judged(code: str, message: str, hint: str) -> Problem:
    return Problem(code=code, message=message, hint=hint, blocks=True)


def lost_card(output: bytes) -> str:
    """The bus id of the card that a failure names; empty when it names none."""
    match = _LOST_CARD.search(output[-8192:].decode("utf-8", "replace"))
    return match[1] if match else ""
