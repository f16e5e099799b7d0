"""NVIDIA cards that the kernel lists and nvidia-smi does not: there, but of no use to anybody now. Pure."""

from collections.abc import Sequence

from core.hardware import Card, PciDevice, Problem

_GIVEN_AWAY = frozenset({"vfio-pci", "pci-stub"})


def undriven_cards(
    devices: Sequence[PciDevice], failure: Problem | None, *, age_s: float | None, was_asked: bool
) -> list[Card]:
    """A card for each device, with why it cannot be used. `failure` is why nvidia-smi did not answer at all."""
    return [
        Card(
            uuid="",
            name=device.model or f"NVIDIA device {device.device_id}",
            pci=device.address,
            age_s=age_s,
            placeable=False,
            problems=_why(device, failure, was_asked),
        )
        for device in devices
    ]


def _why(device: PciDevice, failure: Problem | None, was_asked: bool) -> list[Problem]:
    where = f"the card at {device.address}"
    if device.driver in _GIVEN_AWAY:
        message = f"{where} is given to virtual machines ({device.driver})"
        return [Problem(code="card_given_away", message=message, hint="driverctl unset-override", blocks=True)]
    if failure is not None:
        return [failure]
    if device.driver != "nvidia":
        held = f" (it is held by {device.driver})" if device.driver else ""
        message = f"{where} has no NVIDIA driver{held}"
        hint = "install the NVIDIA driver, modprobe nvidia, and reboot when nouveau holds the card"
        return [Problem(code="card_without_driver", message=message, hint=hint, blocks=True)]
    if not was_asked:
        return []
    message = f"nvidia-smi does not list {where}, though the driver holds it"
    hint = "journalctl -k | grep NVRM says why the driver did not take it"
    return [Problem(code="card_not_listed", message=message, hint=hint, blocks=True)]
