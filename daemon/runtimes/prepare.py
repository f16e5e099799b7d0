"""Everything that must be there before a unit can start: build, weights, home, key, port. Then the unit's text.

This is the only place where a runtime's spec meets the disk. It fails before anything was started, with what is
missing and the command that brings it.
"""

import hashlib
import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from core.config.folders import engines_directory, weights_directory
from core.config.schema import Config, Runtime
from core.errors import ConfigError, NotFoundError
from core.files import ensure_directory, write_atomic
from core.paths import Layout
from core.runtime import Authority
from daemon.runtimes.devices import CPU, Placement
from daemon.runtimes.engine_key import ensure_key
from daemon.runtimes.health import Probe
from daemon.runtimes.ports import choose_port
from daemon.runtimes.spec import declared_adapters, engine_spec, spec_hash, start_deadline_s
from daemon.runtimes.unit import Account, Surroundings, build_gate_unit, build_unit
from engines.adapter import Build, EngineAdapter, EngineCommand, EngineSpec, NodeFacts
from engines.builds import find_build, how_to_install, own_build
from engines.gates.command import GatePlace, build_gate_command
from engines.keys import is_given_key
from engines.kv_events import kv_events
from engines.policy import check_args, check_env
from engines.registry import get_adapter
from engines.weights import check_gguf, size_bytes
from engines.weights import resolve as resolve_weights
from units.backend import UnitFileChange
from units.model import UnitRecord
from units.names import engine_unit_name, gate_unit_name
from units.render import render_unit

_SOCKETS_NAME = 12
"""Hex digits. With them a socket's path is no longer than that of the supervisor's own (`core.paths`)."""


class BuildMissing(NotFoundError):
    """The engine is not installed."""

    code = "engine_build_missing"


class WeightsMissing(NotFoundError):
    """The model's weights are not on this machine."""

    code = "weights_missing"


class AdapterUnknown(NotFoundError):
    """No model of the config is this adapter."""

    code = "adapter_unknown"


class SpecRefused(ConfigError):
    """The engine's adapter or the argument policy refuses the runtime's settings."""

    code = "runtime_spec_refused"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A runtime that can be started now."""

    unit_name: str
    unit_text: str
    gate: UnitFileChange
    """The unit file of its gate; its text is None for a runtime that has none."""
    record: UnitRecord
    probe: Probe
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Preparer:
    """Prepares runtimes of one config on one machine."""

    config: Config
    layout: Layout
    facts: NodeFacts
    account: Account
    node: str
    gateway_gid: int = -1

    def prepare(
        self,
        runtime_id: str,
        *,
        placement: Placement = CPU,
        previous_port: int | None,
        taken: Collection[int],
        is_free: Callable[[int], bool],
    ) -> Prepared:
        """Make home and key, choose a port, render the unit. Raises: LlmgwError of many kinds, each with its remedy."""
        runtime = self.config.runtimes[runtime_id]
        adapter = get_adapter(runtime.engine)
        build, weights = self._build(adapter, runtime), self._weights(adapter, runtime)
        port = choose_port(
            fixed=runtime.port, previous=previous_port, span=self.config.ports.backends, taken=taken, is_free=is_free
        )
        ports = (port, *self._gated_ports(adapter, {*taken, port}, is_free))
        spec = self._spec(runtime_id, port, weights)
        spec = replace(spec, devices=placement.devices, adapter_paths=self._adapter_paths(runtime_id))
        # The engine of a gated runtime listens elsewhere: the runtime's own port is its gate's.
        spec, asked = replace(spec, port=ports[-1]), spec
        self._judge(adapter, spec)
        command = adapter.build_command(spec, build, replace(self.facts, cards=placement.cards))
        for path in command.gguf_files:
            check_gguf(Path(path))
        self._make_folders(spec)
        self._furnish(command)
        key_path = self._key(runtime_id) if is_given_key(adapter, runtime) else None
        engine_key = self._key_inside(runtime_id, key_path) if key_path and command.is_container else key_path
        deadline_s = start_deadline_s(runtime, size_bytes(weights) if weights is not None else 0)
        record = UnitRecord(
            runtime_id=runtime_id,
            engine=runtime.engine,
            build=build.name if build else "",
            spec_hash=spec_hash(self.config, runtime_id),
            ports=ports,
            authority=Authority(owner=self.node),
            devices=placement.devices,
            since=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        around = Surroundings(
            account=self.account,
            key_path=engine_key,
            start_deadline_s=deadline_s,
            memory_max_bytes=int((runtime.memory_gb or 0) * (1 << 30)),
            device_nodes=placement.nodes,
        )
        command = self._with_paths(command, build, weights)
        unit = build_unit(spec, command, record, around, is_gated=adapter.gate is not None)
        gate = self._gate(adapter, spec, record, around)
        return Prepared(unit.name, render_unit(unit), gate, record, Probe(adapter, asked, key_path), deadline_s)

    def _gated_ports(self, adapter: EngineAdapter, taken: Collection[int], is_free: Callable[[int], bool]) -> list[int]:
        """The port of an engine that stands behind a gate."""
        if adapter.gate is None:
            return []
        span = self.config.ports.backends
        return [choose_port(fixed=None, previous=None, span=span, taken=taken, is_free=is_free)]

    def _gate(
        self, adapter: EngineAdapter, spec: EngineSpec, record: UnitRecord, around: Surroundings
    ) -> UnitFileChange:
        """The gate's unit, and the directory that is its own."""
        name = gate_unit_name(spec.runtime_id)
        if adapter.gate is None:
            return UnitFileChange(name, None)
        state = self.layout.gates / slug(spec.runtime_id)
        ensure_directory(self.layout.gates, mode=0o755)
        ensure_directory(state, mode=0o700, uid=self.account.uid, gid=self.account.gid)
        command = build_gate_command(adapter, spec, GatePlace(record.ports[0], spec.port, state))
        return UnitFileChange(name, render_unit(build_gate_unit(spec, command, record, around)))

    def _spec(self, runtime_id: str, port: int, weights: Path | None) -> EngineSpec:
        spec = engine_spec(
            self.config, runtime_id, port=port, weights=weights, home=self.layout.homes / slug(runtime_id)
        )
        name = hashlib.sha256(runtime_id.encode()).hexdigest()[:_SOCKETS_NAME]
        return replace(spec, sockets=self.layout.sockets / name)

    def _make_folders(self, spec: EngineSpec) -> None:
        """Its home, and the directory of its sockets where it has any."""
        own = [spec.home, *([spec.sockets] if kv_events(spec) is not None else [])]
        for folder in own:
            ensure_directory(folder.parent, mode=0o755)
            ensure_directory(folder, mode=0o700, uid=self.account.uid, gid=self.account.gid)

    def _furnish(self, command: EngineCommand) -> None:
        """Folders and files that the engine finds in its home."""
        uid, gid = self.account.uid, self.account.gid
        for folder in command.folders:
            ensure_directory(Path(folder), mode=0o700, uid=uid, gid=gid)
        for path, text in command.files:
            write_atomic(Path(path), text, mode=0o600, uid=uid, gid=gid)

    def adopt_probe(self, runtime_id: str, record: UnitRecord) -> Probe:
        """How to ask a runtime that runs already. Raises: NotFoundError for an engine that this version lacks."""
        adapter = get_adapter(record.engine)
        port = record.ports[0] if record.ports else 0
        spec = self._spec(runtime_id, port, None)
        runtime = self.config.runtimes[runtime_id]
        return Probe(adapter, spec, self.key_path(runtime_id) if is_given_key(adapter, runtime) else None)

    def key_path(self, runtime_id: str) -> Path:
        """Where the key of a runtime's engine lies."""
        return self.layout.keys / f"{slug(runtime_id)}.key"

    def find_weights(self, runtime_id: str) -> Path | None:
        """The weights' file, when the runtime has any and it is there. Raises: SourceInvalid."""
        source = self.config.runtimes[runtime_id].weights
        return resolve_weights(source, weights_directory(self.config, self.layout)) if source else None

    def _build(self, adapter: EngineAdapter, runtime: Runtime) -> Build | None:
        if not adapter.needs_build:
            return None
        own = self.config.engines.own_build(runtime.engine)
        if own is not None and not runtime.build:
            return own_build(runtime.engine, own)
        build = find_build(runtime.engine, runtime.build, engines_directory(self.config, self.layout))
        if build is None:
            what = f"build {runtime.build} of {runtime.engine}" if runtime.build else runtime.engine
            raise BuildMissing(f"{what} is not installed", hint=how_to_install(runtime.engine))
        return build

    def _weights(self, adapter: EngineAdapter, runtime: Runtime) -> Path | None:
        if not runtime.weights:
            return None
        path = resolve_weights(runtime.weights, weights_directory(self.config, self.layout))
        if path is None:
            raise WeightsMissing(
                f"the weights {runtime.weights} are not on this machine", hint=f"llmgw model add {runtime.weights}"
            )
        return path

    def find_adapter(self, runtime_id: str, name: str) -> Path:
        """Where a declared adapter lies. Raises: AdapterUnknown, WeightsMissing, SourceInvalid."""
        source = declared_adapters(self.config, runtime_id).get(name)
        if source is None:
            raise AdapterUnknown(f"no model of runtime {runtime_id} is an adapter {name}", hint="llmgw model list")
        path = resolve_weights(source, weights_directory(self.config, self.layout))
        if path is None:
            raise WeightsMissing(f"the adapter {source} is not on this machine", hint=f"llmgw weights fetch {source}")
        return path

    def _adapter_paths(self, runtime_id: str) -> tuple[str, ...]:
        """Those that are here by now; the unit lets the engine see them."""
        folder = weights_directory(self.config, self.layout)
        found = [resolve_weights(source, folder) for source in declared_adapters(self.config, runtime_id).values()]
        return tuple(str(path) for path in found if path is not None)

    def _judge(self, adapter: EngineAdapter, spec: EngineSpec) -> None:
        problems = [
            *check_args(spec.engine, spec.args),
            *check_env(spec.engine, dict(spec.env)),
            *adapter.check_spec(spec),
        ]
        if problems:
            raise SpecRefused(f"runtimes.{spec.runtime_id}: {'; '.join(problems)}")

    def _with_paths(self, command: EngineCommand, build: Build | None, weights: Path | None) -> EngineCommand:
        given = [build.executable.parent if build else None, weights]
        paths = (*command.read_only_paths, *(str(path) for path in given if path is not None))
        return replace(command, read_only_paths=tuple(dict.fromkeys(paths)))

    def _key(self, runtime_id: str) -> Path:
        path = self.key_path(runtime_id)
        ensure_key(path, gid=self.gateway_gid)
        return path

    def _key_inside(self, runtime_id: str, key_path: Path) -> Path:
        """The key for the account in a container, which no credential of systemd's reaches."""
        inside = key_path.with_suffix(".inside")
        write_atomic(inside, key_path.read_text(), mode=0o400, uid=self.account.uid, gid=self.account.gid)
        return inside


def slug(runtime_id: str) -> str:
    """A runtime's name in the file system: that of its unit, without prefix and suffix."""
    return re.sub(r"^llmgw-engine-(.*)\.service$", r"\1", engine_unit_name(runtime_id))


def node_facts() -> NodeFacts:
    """CPUs that we may use and the machine's memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return NodeFacts(cpu_count=len(os.sched_getaffinity(0)), memory_total_mib=total)
