"""What operators and clients asked of runtimes beyond the config; the rest of what is wanted. Pure.

Kept in memory only: the unit files say the same after a restart of the daemon (a unit with `Hold=` was stopped by an
operator, one with `Leaving=` was on its way out, any other was asked for), and a reboot forgets it all.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from core.config.schema import Config
from daemon.reconcile import Wanted
from daemon.runtimes.spec import spec_hash
from units.model import UnitRecord


@dataclass(slots=True)
class Intents:
    """Start requests and holds, by runtime."""

    requested: dict[str, str] = field(default_factory=dict)
    """Runtime -> who asked for it."""
    held: set[str] = field(default_factory=set)
    evicted: dict[str, str] = field(default_factory=dict)
    """Runtime that must go now -> why; until it has gone."""
    serving: bool = True
    """False: an operator freed the whole node (`llmgw stop`)."""

    def request(self, runtime_id: str, reason: str) -> None:
        """Somebody wants it to run."""
        self.held.discard(runtime_id)
        self.requested[runtime_id] = reason

    def hold(self, runtime_id: str) -> None:
        """An operator wants it stopped, whatever the config says."""
        self.requested.pop(runtime_id, None)
        self.held.add(runtime_id)

    def evict(self, runtime_id: str, reason: str) -> None:
        """It must make room, or was idle for too long; whoever asks for it later gets it back.

        Also who has asked since it was told so for the first time.
        """
        if runtime_id not in self.evicted:
            self.requested.pop(runtime_id, None)
        self.evicted[runtime_id] = reason

    def serve(self, on: bool) -> None:
        """Free the node, and forget what was asked for; or let it serve again what the config pins."""
        self.serving = on
        if not on:
            self.requested.clear()

    def settle(self, runtime_ids: Iterable[str]) -> None:
        """These have stopped, or are no longer ours to stop: nothing keeps them from being wanted again."""
        for runtime_id in runtime_ids:
            self.evicted.pop(runtime_id, None)

    def recall(self, records: Iterable[UnitRecord]) -> None:
        """Read the unit files of an earlier daemon."""
        for record in records:
            if record.hold:
                self.held.add(record.runtime_id)
            elif not record.leaving:
                self.requested.setdefault(record.runtime_id, "it was running")


def wanted_of(config: Config, intents: Intents) -> dict[str, Wanted]:
    """What every runtime of the config should be."""
    return {runtime_id: wanted_runtime(config, intents, runtime_id) for runtime_id in config.runtimes}


def wanted_runtime(config: Config, intents: Intents, runtime_id: str) -> Wanted:
    """What this one should be."""
    runtime = config.runtimes.get(runtime_id)
    if runtime is None:
        return Wanted(run=False, reason="not in the config")
    if not runtime.enabled:
        return Wanted(run=False, reason="disabled in the config")
    if runtime_id in intents.held:  # before all that passes: its unit file must go on saying so
        return Wanted(run=False, hold=True, reason="stopped by an operator")
    if not intents.serving:
        return Wanted(run=False, reason="serving is stopped")
    if runtime_id in intents.evicted:
        return Wanted(run=False, reason=intents.evicted[runtime_id])
    if runtime_id in intents.requested:
        return Wanted(run=True, spec_hash=spec_hash(config, runtime_id), reason=intents.requested[runtime_id])
    if runtime.keep_warm:
        return Wanted(run=True, spec_hash=spec_hash(config, runtime_id), reason="keep warm")
    if runtime.preferred_warm:
        return Wanted(run=True, spec_hash=spec_hash(config, runtime_id), reason="preferred warm")
    return Wanted(run=False, reason="nobody asked for it")
