"""The seam to the kernel's tables: what the guard asks for, and how it fails. `apply.py` is the real one.

It is loaded by name: python3-nftables comes with Debian and not with the package index, and a machine without it must
serve all the same.
"""

import importlib
from collections.abc import Sequence
from typing import Protocol

from core.errors import DependencyError, LlmgwError
from firewall.ruleset import Command, Object


class FirewallUnavailable(DependencyError):
    """The kernel's tables cannot be used from here."""

    code = "firewall_unavailable"


class FirewallNotPermitted(DependencyError):
    """This process may not look at or change the kernel's tables."""

    code = "firewall_not_permitted"


class FirewallRefused(DependencyError):
    """The kernel or libnftables refused the rules; nothing was changed."""

    code = "firewall_refused"


class Kernel(Protocol):
    """Our table in the kernel."""

    async def read(self) -> list[Object] | None:
        """The objects of our table; None when there is none. Raises: LlmgwError of the kinds above."""

    async def apply(self, commands: Sequence[Command]) -> None:
        """Check the commands, then do all of them or none. Raises: likewise."""


class NoKernel:
    """Stands where there is none: every call says why."""

    def __init__(self, reason: LlmgwError) -> None:
        self._reason = reason

    async def read(self) -> list[Object] | None:
        raise self._reason

    async def apply(self, commands: Sequence[Command]) -> None:
        raise self._reason


def load_kernel() -> Kernel:
    """The real one, or one that says what is missing."""
    try:
        module = importlib.import_module("firewall.apply")
    except ImportError as error:
        return NoKernel(
            FirewallUnavailable(f"nftables cannot be used: {error}", hint="apt-get install python3-nftables nftables")
        )
    kernel: Kernel = module.NftKernel()
    return kernel
