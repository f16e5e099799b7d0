"""What is wrong with a card: from its counters, from the driver's messages, from how old its values are. Pure.

A problem `blocks` when a model placed there would fail or compute wrongly; the rest an operator should know of. What
is an event of the past can be cleared; what is a state that the next sample would find again cannot.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from core.hardware import Card, Problem, XidCount
from daemon.hardware.xid import VERDICT, XidEvent, policy_of

_AMPERE = 8.0
"""From this compute capability on, a card contains errors and remaps rows while it runs."""

_NVLINK_ERRORS = 100
"""Replays and CRC errors are counted on healthy links too; these many are not."""

_BLOCKING_ACTIONS = ("reset", "reboot")
_THERMAL = ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_slowdown", "hw_power_brake_slowdown")


@dataclass(frozen=True, slots=True)
class CardXids:
    """The driver's messages about one card, folded."""

    counts: Mapping[int, XidCount] = field(default_factory=dict)
    verdict: str = ""
    """The recovery that the driver asked for last; empty: none."""

    def add(self, event: XidEvent) -> "CardXids":
        """With one more message. The verdict `None` ends what earlier ones blocked."""
        policy, before = policy_of(event.xid), self.counts.get(event.xid)
        count = XidCount(
            xid=event.xid,
            meaning=policy.meaning,
            count=(before.count if before else 0) + 1,
            last_s=event.at_s,
            blocks=policy.blocks,
        )
        counts = {**self.counts, event.xid: count}
        if event.recovery is None:
            return replace(self, counts=counts)
        if event.recovery == "":
            counts = {number: _unblocked(entry) for number, entry in counts.items()}
        return CardXids(counts, event.recovery)


def _unblocked(count: XidCount) -> XidCount:
    return XidCount(xid=count.xid, meaning=count.meaning, count=count.count, last_s=count.last_s, blocks=False)


def judge_card(card: Card, xids: CardXids, *, acknowledged_ecc: int = 0) -> list[Problem]:
    """Everything that is wrong with one card or instance; `acknowledged_ecc` errors were cleared by an operator."""
    return [
        *_from_xids(card, xids),
        *_from_driver(card),
        *_from_memory(card, acknowledged_ecc),
        *_from_links(card),
        *_from_throttling(card),
    ]


def _from_xids(card: Card, xids: CardXids) -> list[Problem]:
    problems = [
        Problem(
            code=f"xid_{entry.xid}",
            message=f"XID {entry.xid}, {entry.count} x: {entry.meaning}",
            hint=policy_of(entry.xid).remedy.format(card=name_of(card)),
            blocks=True,
            clearable=True,
        )
        for entry in sorted(xids.counts.values(), key=lambda entry: entry.xid)
        if entry.blocks
    ]
    if xids.verdict:
        blocks = _blocks(xids.verdict)
        problems.append(
            Problem(
                code=f"xid_{VERDICT}",
                message=f"the driver says that the card needs: {xids.verdict}",
                hint=_how(card, xids.verdict),
                blocks=blocks,
                clearable=True,
            )
        )
    return problems


def _from_driver(card: Card) -> list[Problem]:
    if not card.recovery_action:
        return []
    return [
        Problem(
            code="recovery_needed",
            message=f"the driver asks for a recovery: {card.recovery_action}",
            hint=_how(card, card.recovery_action),
            blocks=_blocks(card.recovery_action),
        )
    ]


def _from_memory(card: Card, acknowledged_ecc: int) -> list[Problem]:
    problems = []
    if card.ecc_uncorrected is not None and card.ecc_uncorrected > acknowledged_ecc:
        # Later cards kill the one application that was hit and go on; earlier ones may have given wrong results.
        contains = bool(card.compute_capability) and float(card.compute_capability) >= _AMPERE
        problems.append(
            Problem(
                code="ecc_uncorrected",
                message=f"{card.ecc_uncorrected} uncorrectable memory errors since the driver was loaded",
                hint=_how(card, "Reset") + f"; llmgw hardware clear {name_of(card)} places models on it as it is",
                blocks=not contains,
                clearable=True,
            )
        )
    if card.remap_failed:
        hint = "replace the card"
        problems.append(
            Problem(code="remap_failed", message="a memory row could not be remapped", hint=hint, blocks=True)
        )
    if card.remap_pending:
        problems.append(
            Problem(
                code="remap_pending",
                message="bad memory is set aside with the next reset",
                hint=_how(card, "Reset"),
            )
        )
    return problems


def _from_links(card: Card) -> list[Problem]:
    bad = [
        str(link.link)
        for link in card.nvlinks
        if (link.recovery_errors or 0) > 0
        or (link.crc_errors or 0) >= _NVLINK_ERRORS
        or (link.replay_errors or 0) >= _NVLINK_ERRORS
    ]
    if not bad:
        return []
    return [
        Problem(
            code="nvlink_errors",
            message=f"NVLink {', '.join(bad)} counts errors",
            hint="nvidia-smi nvlink -e; reseat or replace the bridge or the card when they grow",
        )
    ]


def _from_throttling(card: Card) -> list[Problem]:
    hot = [reason for reason in card.throttled_by if reason in _THERMAL]
    if not hot:
        return []
    at = f" at {card.temperature_c} °C" if card.temperature_c is not None else ""
    return [
        Problem(
            code="throttled",
            message=f"the card slows itself down{at}: {', '.join(hot)}",
            hint="look at cooling and power",
        )
    ]


def name_of(card: Card) -> str:
    """How an operator names the card: its index, or the address of one that the driver does not know."""
    return str(card.index) if card.index is not None else card.pci or card.uuid


def _blocks(action: str) -> bool:
    return any(word in action.lower() for word in _BLOCKING_ACTIONS)


def _how(card: Card, action: str) -> str:
    if "reboot" in action.lower():
        return "reboot"
    if "reset" in action.lower():
        return f"nvidia-smi --gpu-reset -i {name_of(card)} with nothing running on it, or reboot"
    return "restart what runs on it"
