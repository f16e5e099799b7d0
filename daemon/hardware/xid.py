"""The driver's XID messages in the kernel log: how a line reads, and what each number means for placement. Pure.

The policy follows NVIDIA's catalog of XIDs (docs.nvidia.com/deploy/xid-errors): what an application did to itself is
only counted; what leaves the card unable to compute until it is reset takes it out of placement until an operator
says `llmgw hardware clear`, or until the machine is booted again. A number that is not in the table is counted and
shown. 154 is the driver's own verdict: it says which action a card needs, and `None` when it needs none any more.
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


POLICIES: dict[int, Policy] = {
    13: _counts("an application's kernel broke (graphics engine exception)"),
    31: _counts("an application touched memory that is not its own (MMU fault)"),
    32: _counts("an invalid push buffer stream"),
    38: _counts("the driver's firmware reported an error"),
    43: _counts("an application's channel was stopped"),
    44: _counts("a fault while a context was switched"),
    45: _counts("channels were cleaned up after an earlier error"),
    48: _blocks("an uncorrectable (double bit) ECC error"),
    61: _counts("the power micro-controller hit a breakpoint"),
    62: _blocks("the power micro-controller halted"),
    63: _counts("a row was remapped or a page retired; it takes effect with the next reset"),
    64: _blocks("a row could not be remapped", "replace the card when a reset does not end it"),
    68: _counts("the video decoder reported an exception"),
    69: _counts("a graphics engine class error"),
    74: _blocks("an NVLink error"),
    78: _blocks("a virtual GPU could not be started"),
    79: _blocks("the card has fallen off the bus", _REBOOT),
    92: _counts("many correctable ECC errors"),
    94: _counts("an uncorrectable ECC error that one application paid for (contained)"),
    95: _blocks("an uncorrectable ECC error that may have reached every application (uncontained)"),
    109: _blocks("a context switch timed out"),
    119: _blocks("the card's system processor (GSP) does not answer"),
    120: _blocks("the card's system processor (GSP) reported an error"),
    121: _counts("a corrected error of the link between processor and card (C2C)"),
    122: _counts("an inforom access failed"),
    123: _blocks("the power micro-controller does not answer"),
    136: _blocks("a link of the card could not be trained"),
    140: _blocks("an unrecovered ECC error"),
    143: _blocks("the card could not be initialized", _REBOOT),
    154: _counts("the driver says which recovery the card needs"),
    155: _counts("an NVLink was taken down by software"),
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
