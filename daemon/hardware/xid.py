"""The driver's XID messages in the kernel log: how a line reads, and what each number means for placement. Pure.

Meaning and policy are those of NVIDIA's "Analyzing Xid Errors with the Xid Catalog" (Ampere and newer;
docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), and for what it calls unused of the listing for older
cards in "Xid Errors" (r555, docs.nvidia.com/deploy/xid-errors). A number whose immediate action there is RESET_GPU,
RESTART_BM or RESTART_VM, or whose text says that the card must be reset (48, 74, 95, 123), takes the card out of
placement until an operator says `llmgw hardware clear`, or until the machine is booted again. All others (IGNORE,
RESTART_APP, UPDATE_SWFW, no action) are only counted and shown, as is a number that is not in the table.

154 is the driver's own verdict: it says which action a card needs, and `None` when it needs none any more. NVLink 5
errors (144 to 150, 159) depend on bits of the message that change with the driver; they are counted, and the verdict,
which drivers from 565 on send with them, decides.
"""

import re
from dataclasses import dataclass

from daemon.hardware.nvidia import pci_address

_LINE = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)\): (\d{1,6})(?:, (.*))?$")
_KMSG = re.compile(r"^\d+,\d+,(\d{1,18}),[^;]*;(.*)$")
_PRINTED = re.compile(r"^\[\s*(\d{1,12}\.\d{1,9})\]\s?(?:\S+ kernel: )?(.*)$")
_VERDICT = re.compile(r"changed from \S+ \([^)]*\) to \S+ \(([^)]*)\)")
VERDICT = 154
_RESET = "nvidia-smi --gpu-reset -i {card} with nothing running on it, or reboot; then llmgw hardware clear {card}"
_REBOOT = "reboot; if it comes again, the card, its seat or its power is at fault"


@dataclass(frozen=True, slots=True)
class Policy:
    """What one number means."""

    meaning: str
    blocks: bool = False
    remedy: str = ""
    """With `{card}` for the card's index or address."""


def _counts(meaning: str) -> Policy:
    return Policy(meaning)


def _blocks(meaning: str, remedy: str = _RESET) -> Policy:
    return Policy(meaning, blocks=True, remedy=remedy)


_COPY_ENGINES = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))
_VIDEO = (60, 68, 83, 84, 88, 89, 96, 97, 98, 142)
_JPEG = (82, *range(99, 106))
_OPTICAL_FLOW = (86, 139)
_NVLINK5 = (*range(144, 151),)

POLICIES: dict[int, Policy] = {
    **dict.fromkeys(_COPY_ENGINES, _counts("a copy engine reported an error; the application it worked for ends")),
    **dict.fromkeys(_VIDEO, _counts("a video engine reported an error; the application it worked for ends")),
    **dict.fromkeys(_JPEG, _counts("a JPEG engine reported an error; the application it worked for ends")),
    **dict.fromkeys(_OPTICAL_FLOW, _counts("the optical flow engine reported an error")),
    **dict.fromkeys(_NVLINK5, _counts("an NVLink error; the driver's verdict (154) says what it asks for")),
    8: _counts("an application's channel stopped (idle timeout)"),
    11: _counts("an invalid push buffer stream"),
    13: _counts("an application's kernel broke (graphics engine exception)"),
    14: _counts("an error that a test injected"),
    25: _counts("an illegal push buffer stream"),
    31: _counts("an application touched memory that is not its own (MMU fault)"),
    32: _counts("an invalid push buffer stream; mostly the quality of the PCIe link"),
    37: _counts("the driver's firmware reported an error"),
    38: _counts("the driver's firmware reported an error"),
    43: _counts("an application's channel was stopped; the card is healthy"),
    44: _counts("a fault while a context was switched"),
    45: _counts("channels were cleaned up after an application's end or an earlier error"),
    46: _blocks("the card stopped processing"),
    48: _blocks("an uncorrectable (double bit) ECC error"),
    54: _counts("auxiliary power is not connected to the card"),
    56: _counts("a display engine error"),
    57: _counts("the memory interface could not be programmed (older cards)"),
    58: _counts("the memory interface is unstable (older cards)"),
    59: _counts("the power micro-controller reported an error (older drivers)"),
    61: _counts("the power micro-controller hit a breakpoint (older cards)"),
    62: _blocks("the power micro-controller halted"),
    63: _counts("a row was remapped or a page retired; it takes effect with the next reset"),
    64: _blocks("a row could not be remapped or a page not retired", f"{_RESET}; replace the card when it comes again"),
    66: _counts("an illegal access by the driver"),
    67: _counts("an illegal access by the driver"),
    69: _counts("a graphics engine class error"),
    74: _blocks("an NVLink error, here or at the other end of the link"),
    78: _counts("a virtual GPU could not be started: its software does not fit the driver"),
    79: _blocks("the card has fallen off the bus", _REBOOT),
    80: _counts("corrupted data was sent to the card"),
    92: _counts("many correctable ECC errors"),
    93: _counts("the limit set for writing the card's InfoROM is reached"),
    94: _counts("an uncorrectable memory error that one application paid for (contained)"),
    95: _blocks("an uncorrectable memory error that may have reached every application (uncontained)"),
    106: _counts("a test message of the management bus"),
    107: _counts("a test message of the management bus"),
    108: _counts("an address from another card could not be translated"),
    109: _blocks("a context switch timed out"),
    110: _blocks("a security fault; mostly the hardware", _REBOOT),
    119: _blocks("the card's system processor (GSP) does not answer"),
    120: _blocks("the card's system processor (GSP) reported an error"),
    121: _counts("a corrected error of the link between processor and card (C2C)"),
    122: _counts("the card's flash could not be read"),
    123: _blocks("the card's flash could not be written"),
    124: _counts("the card's flash could not be erased"),
    125: _counts("the card's InfoROM file system is broken"),
    136: _blocks("a link of the card could not be trained"),
    137: _counts("an application touched another card's memory that is not its own (NVLink)"),
    140: _blocks("an unrecovered ECC error"),
    141: _counts("an error of CUDA's fast path"),
    143: _blocks("the card could not be initialized"),
    151: _blocks("the keys of confidential computing could not be changed", _REBOOT),
    154: _counts("the driver says which recovery the card needs"),
    155: _blocks("an NVLink was taken down by software"),
    156: _blocks("a broken part of the card is set aside with the next reset"),
    157: _counts("a broken part of the card could not be set aside; it may report errors again"),
    158: _blocks("the card timed out and gave up"),
    159: _counts("an error of the link between processor and card (C2C)"),
    160: _counts("a memory channel was retired"),
    161: _counts("a memory channel could not be retired"),
    162: _counts("power smoothing is on again"),
    163: _counts("power smoothing is off"),
    164: _counts("power smoothing will wear out soon"),
    165: _counts("power smoothing is worn out"),
    166: _counts("an NVLink carried data before its encryption was set up"),
    167: _counts("PCIe timed out"),
    168: _counts("the card offers less memory: errors in a protected region; switch ECC on"),
    169: _counts("the security micro-controller halted"),
    170: _counts("an NVLink interrupt in confidential computing"),
    171: _counts("details of an uncorrectable error (48): it was in the card's DRAM"),
    172: _counts("details of an uncorrectable error (48): it was in the card's SRAM"),
}
_UNKNOWN = _counts("not in llmgw's table")


@dataclass(frozen=True, slots=True)
class XidEvent:
    """One message."""

    pci: str
    xid: int
    text: str
    at_s: float
    """Seconds after boot."""

    @property
    def recovery(self) -> str | None:
        """Of the driver's verdict: the action that it asks for; empty: none. None: this is no verdict."""
        match = _VERDICT.search(self.text) if self.xid == VERDICT else None
        if match is None:
            return None
        return "" if match[1].strip().lower() == "none" else match[1].strip()


def policy_of(xid: int) -> Policy:
    return POLICIES.get(xid, _UNKNOWN)


def parse_kernel_line(line: str) -> XidEvent | None:
    """A record of /dev/kmsg, or a line of `dmesg` or of the journal's short-monotonic form; None: it is no XID."""
    if "NVRM: Xid" not in line:
        return None
    at_s, text = _stamp(line)
    match = _LINE.search(text.rstrip())
    if match is None:
        return None
    return XidEvent(pci_address(match[1]), int(match[2]), (match[3] or "")[:300], at_s)


def _stamp(line: str) -> tuple[float, str]:
    if match := _KMSG.match(line):
        return int(match[1]) / 1e6, match[2]
    if match := _PRINTED.match(line):
        return float(match[1]), match[2]
    return 0.0, line
