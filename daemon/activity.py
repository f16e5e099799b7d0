"""The sum of what all gateway workers report of their requests. Pure but for the clock that callers pass."""

from dataclasses import dataclass, field

from core.activity import FORGET_AFTER_S, ActivityReport, BackendActivity, RuntimeActivity


@dataclass(frozen=True, slots=True)
class Load:
    """All workers together, for one runtime."""

    active: int = 0
    waiting: int = 0
    idle_s: float | None = None
    """Seconds since the last request ended anywhere; None: none ever did."""
    bytes_total: int = 0
    held_back: int = 0
    stalled_s: float = 0.0
    own: int = 0
    """What the engine itself says that it still works on, after it answered who asked for it."""

    @property
    def under_way(self) -> int:
        """What a stop would break off."""
        return self.active + self.own

    @property
    def is_busy(self) -> bool:
        return self.under_way > 0 or self.waiting > 0


@dataclass(frozen=True, slots=True)
class AdapterUse:
    """All workers together, for one LoRA adapter."""

    in_use: int = 0
    idle_s: float | None = None
    """Seconds since the last request for it ended; None: none ever did."""


@dataclass(frozen=True, slots=True)
class _Heard:
    report: ActivityReport
    at_s: float


@dataclass(slots=True)
class Activity:
    """Reports by source. `now_s` is monotonic everywhere."""

    _heard: dict[str, _Heard] = field(default_factory=dict)
    _last_end_s: dict[str, float] = field(default_factory=dict)
    """When the last request of a runtime ended, kept after its worker is gone."""
    _adapter_end_s: dict[tuple[str, str], float] = field(default_factory=dict)
    """Likewise of an adapter: (runtime, name)."""
    _own: dict[str, tuple[int, float]] = field(default_factory=dict)
    """What engines said last of their own work, and when."""

    def take(self, report: ActivityReport, now_s: float) -> None:
        """A worker reported."""
        self._heard[report.source] = _Heard(report, now_s)
        for runtime_id, one in report.runtimes.items():
            if one.idle_s is not None:
                ended_s = now_s - one.idle_s
                self._last_end_s[runtime_id] = max(ended_s, self._last_end_s.get(runtime_id, ended_s))
            for name, adapter in one.adapters.items():
                if adapter.idle_s is not None:
                    key, ended_s = (runtime_id, name), now_s - adapter.idle_s
                    self._adapter_end_s[key] = max(ended_s, self._adapter_end_s.get(key, ended_s))

    def note_own(self, runtime_id: str, count: int, now_s: float) -> None:
        """An engine that works on after it answered has so much under way, or waiting, by its own counters."""
        self._own[runtime_id] = count, now_s
        if count:
            self._last_end_s[runtime_id] = max(now_s, self._last_end_s.get(runtime_id, now_s))

    def load(self, runtime_id: str, now_s: float) -> Load:
        """What is under way for a runtime."""
        self._forget(now_s)
        parts = [heard.report.runtimes.get(runtime_id, RuntimeActivity()) for heard in self._heard.values()]
        ended_s = self._last_end_s.get(runtime_id)
        own, noted_s = self._own.get(runtime_id, (0, now_s))
        return Load(
            active=sum(part.active for part in parts),
            waiting=sum(part.waiting for part in parts),
            idle_s=None if ended_s is None else now_s - ended_s,
            bytes_total=sum(part.bytes_total for part in parts),
            held_back=sum(part.held_back for part in parts),
            stalled_s=max((part.stalled_s for part in parts), default=0.0),
            own=own if now_s - noted_s <= FORGET_AFTER_S else 0,
        )

    def of_backend(self, name: str, now_s: float) -> list[tuple[BackendActivity, float]]:
        """What the workers say of one, each with the age of its report in seconds."""
        self._forget(now_s)
        return [
            (heard.report.backends[name], now_s - heard.at_s)
            for heard in self._heard.values()
            if name in heard.report.backends
        ]

    def adapter_use(self, runtime_id: str, name: str, now_s: float) -> AdapterUse:
        """What is under way for an adapter."""
        self._forget(now_s)
        parts = [heard.report.runtimes.get(runtime_id, RuntimeActivity()).adapters for heard in self._heard.values()]
        ended_s = self._adapter_end_s.get((runtime_id, name))
        return AdapterUse(
            in_use=sum(adapters[name].in_use for adapters in parts if name in adapters),
            idle_s=None if ended_s is None else now_s - ended_s,
        )

    def all_have_seen(self, epoch: str, version: int, now_s: float) -> bool:
        """Whether every living worker dispatches by that route table or a newer one."""
        self._forget(now_s)
        return all(heard.report.epoch == epoch and heard.report.version >= version for heard in self._heard.values())

    def complaints(self, now_s: float) -> list[str]:
        """What keeps workers from serving as the config says, each once."""
        self._forget(now_s)
        return sorted({heard.report.complaint for heard in self._heard.values() if heard.report.complaint})

    def _forget(self, now_s: float) -> None:
        gone = [source for source, heard in self._heard.items() if now_s - heard.at_s > FORGET_AFTER_S]
        for source in gone:
            del self._heard[source]
