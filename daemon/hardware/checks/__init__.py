"""The doctor's checks: one file each, each a pure function from the facts to its findings, in this order."""

from collections.abc import Callable, Iterator

from core.hardware import Finding
from daemon.hardware.checks import (
    backends,
    cards,
    config,
    cpu,
    daemon,
    disks,
    driver,
    engine_user,
    firewall,
    gates,
    gateway,
    infiniband,
    keys,
    memory,
    mirrors,
    ports,
    runtimes,
    sources,
    units,
)
from daemon.hardware.facts import Facts

Check = Callable[[Facts], Iterator[Finding]]
"""Yields at least one finding when it has anything to look at, `ok` ones included."""

CHECKS: tuple[Check, ...] = (
    *(
        daemon.check,
        config.check,
        keys.check,
        gateway.check,
        ports.check,
        engine_user.check,
        firewall.check,
        runtimes.check,
        gates.check,
        backends.check,
        units.check,
        mirrors.check,
    ),
    *(cpu.check, memory.check, disks.check, driver.check, cards.check, infiniband.check, sources.check),
)
