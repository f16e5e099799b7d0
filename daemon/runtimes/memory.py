"""Memory pools of a node, and what is asked of them. Frozen values for admission; sizes in MiB."""

from collections.abc import Mapping
from dataclasses import dataclass, field

HOST = "host"
"""The pool of the machine's own memory; every other pool is named by a GPU's uuid."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One memory that runtimes share."""

    name: str
    budget_mib: int
    """What all runtimes together may use."""
    used_mib: int | None = None
    """Measured now, by everybody, other programs included; None: it cannot be read."""
    label: str = ""
    """What people call it."""

    @property
    def title(self) -> str:
        return self.label or ("memory" if self.name == HOST else self.name)


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of the host's memory runtimes may use: the first of these that is set wins."""

    node_budget_mib: int | None = None
    policy_budget_mib: int | None = None
    max_utilization: float | None = None
    reserve_mib: int = 8 << 10
    declared_mib: int | None = None
    """What the config says that the machine has: it can give less than there is, and never more."""

    def of(self, total_mib: int) -> int:
        """The budget on a machine with this much memory; never below zero."""
        total_mib = total_mib if self.declared_mib is None else min(total_mib, self.declared_mib)
        if self.node_budget_mib is not None:
            return self.node_budget_mib
        if self.policy_budget_mib is not None:
            return self.policy_budget_mib
        if self.max_utilization is not None:
            return int(total_mib * self.max_utilization)
        # A small machine keeps a share and not the whole reserve, else nothing could ever be loaded on it.
        return max(0, total_mib - min(self.reserve_mib, total_mib // 4))


@dataclass(frozen=True, slots=True)
class Resident:
    """One runtime of this node, as admission sees it."""

    runtime_id: str
    loaded: bool
    needs: Mapping[str, int] = field(default_factory=dict)
    """Pool -> MiB that it holds when loaded; empty: unknown."""
    active: int = 0
    waiting: int = 0
    keep_warm: bool = False
    preferred_warm: bool = False
    priority: int = 100
    """Larger is more important."""
    idle_s: float | None = None
    """Since its last request ended; None: it never had one."""
    resident_s: float = 0.0
    """Since it runs."""
    starting: bool = False
    """It comes up, and somebody asked for it: stopped now, whoever waits for it would have waited for nothing."""
    restarting: bool = False
    """It goes down to come up again; its room is its own."""
    leaving: bool = False
    """It is being stopped, and nobody wants it back: what it holds is free in a while, whatever it still does."""
    owner: str = ""
    """Another node that alone may stop it; empty: it is ours."""

    @property
    def is_busy(self) -> bool:
        return self.active > 0 or self.waiting > 0
