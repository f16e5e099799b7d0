"""Carries out what `daemon/reconcile.py` decided: writes unit files in one batch, then lets each runtime's job run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from core.errors import LlmgwError
from core.files import StorageError
from core.hardware import Card
from core.log import EventLogger
from daemon.reconcile import Action, Hold, Note, Remove, Start, Stop
from daemon.runtimes.controller import RuntimeController
from daemon.runtimes.devices import Placement
from daemon.runtimes.ports import is_bindable
from daemon.runtimes.prepare import Prepared, Preparer
from daemon.runtimes.spec import spec_hash
from units.backend import UnitBackend, UnitFileChange
from units.model import UnitRecord
from units.names import gate_unit_name
from units.record import RecordUnreadable, change_record


class Applier:
    """Effects of one pass. A pass changes files with one reload of the service manager, however many runtimes."""

    def __init__(self, backend: UnitBackend, log: EventLogger, read_cards: Callable[[], Sequence[Card]]) -> None:
        self._backend = backend
        self._log = log
        self._read_cards = read_cards

    async def apply(
        self, actions: Sequence[Action], controllers: Mapping[str, RuntimeController], preparer: Preparer
    ) -> None:
        """Write and remove files, then begin starts and stops; returns when they are under way.

        A start whose file cannot be written has failed. A stop begins whether or not its file could be: that is what
        makes room on a full disk, and a later pass writes the file. Raises: BackendLost, and StorageError at the end
        for a file that is still to be changed.
        """
        if not actions:
            return
        drain_s = preparer.config.runtime_policy.drain_timeout_ms / 1000
        starts = self._prepare([a for a in actions if isinstance(a, Start)], controllers, preparer)
        stops = [a for a in actions if isinstance(a, Stop)]
        removes = [a for a in actions if isinstance(a, Remove)]
        rewrites = _rewrites(actions, controllers)
        files = await self._read_files() if rewrites else {}
        changes = [
            *(UnitFileChange(prepared.unit_name, prepared.unit_text) for prepared in starts.values()),
            *(prepared.gate for prepared in starts.values()),
            *_rewritten(rewrites, controllers, files),
            *(UnitFileChange(controllers[remove.runtime_id].unit_name, None) for remove in removes),
            *(UnitFileChange(gate_unit_name(remove.runtime_id), None) for remove in removes),
        ]
        failed = await self._write(changes)
        written = {i: c for i, c in controllers.items() if c.unit_name not in failed}
        for runtime_id in written.keys() & rewrites.keys():
            written[runtime_id].unit_rewritten(rewrites[runtime_id])
        for runtime_id in written.keys() & {remove.runtime_id for remove in removes}:
            written[runtime_id].unit_removed()
        for stop in stops:
            self._log.info("runtime_stop", runtime=stop.runtime_id, reason=stop.reason)
            controllers[stop.runtime_id].begin_stop(stop.reason, drain_s)
        for runtime_id, prepared in starts.items():
            errors = (failed.pop(name, None) for name in (prepared.unit_name, prepared.gate.name))
            if error := next((error for error in errors if error is not None), None):
                controllers[runtime_id].fail(error, prepared.record.spec_hash)
                continue
            self._log.info("runtime_start", runtime=runtime_id, port=prepared.record.ports[0])
            controllers[runtime_id].begin_start(prepared)
        for error in failed.values():
            raise error

    async def _read_files(self) -> Mapping[str, str]:
        """What cannot be read cannot be rewritten either; a later pass tries again."""
        try:
            return await self._backend.read_files()
        except StorageError as error:
            self._log.warning("unit_files_unreadable", error=error.message)
            return {}

    async def _write(self, changes: Sequence[UnitFileChange]) -> dict[str, StorageError]:
        """All in one batch, or, where that fails, one by one, so that one bad file hinders no other.

        Returns why each that failed did, by the unit's name. Raises: BackendLost.
        """
        if not changes:
            return {}
        failed: dict[str, StorageError] = {}
        try:
            await self._backend.apply_files(changes)
        except StorageError:
            for change in changes:
                try:
                    await self._backend.apply_files([change])
                except StorageError as error:
                    failed[change.name] = error
        return failed

    def _prepare(
        self, starts: Sequence[Start], controllers: Mapping[str, RuntimeController], preparer: Preparer
    ) -> dict[str, Prepared]:
        """Prepare each; one that cannot be is failed with the reason and hinders no other."""
        taken = {port for controller in controllers.values() for port in controller.ports}
        taken |= {r.port for r in preparer.config.runtimes.values() if r.port is not None}
        taken.add(preparer.config.server.port)
        prepared: dict[str, Prepared] = {}
        for start in starts:
            controller = controllers[start.runtime_id]
            others = taken - {*controller.ports}
            try:
                ready = preparer.prepare(
                    start.runtime_id,
                    placement=Placement(start.devices, tuple(self._read_cards())),
                    previous_port=controller.port or None,
                    taken=others,
                    is_free=is_bindable,
                )
            except LlmgwError as error:
                controller.fail(error, spec_hash(preparer.config, start.runtime_id))
                continue
            taken.update(ready.record.ports)
            prepared[start.runtime_id] = ready
        return prepared


RecordChange = Callable[[UnitRecord], UnitRecord]


def _rewrites(actions: Sequence[Action], controllers: Mapping[str, RuntimeController]) -> dict[str, RecordChange]:
    """Runtimes whose unit file is to say something else from now on, and what. Pure."""
    rewrites: dict[str, RecordChange] = {}
    for action in actions:
        match action:
            case Hold() | Stop(hold=True):
                rewrites[action.runtime_id] = _held
            case Stop(leave=True):
                rewrites[action.runtime_id] = _leaving
            case Note():
                given_up = controllers[action.runtime_id].given_up
                rewrites[action.runtime_id] = partial(replace, failure=given_up, leaving=False)
    return rewrites


def _held(record: UnitRecord) -> UnitRecord:
    """Only an operator may start it; whatever it failed of before is past."""
    return replace(record, hold=True, leaving=False, failure=None)


def _leaving(record: UnitRecord) -> UnitRecord:
    return replace(record, leaving=True, failure=None)


def _rewritten(
    rewrites: Mapping[str, RecordChange], controllers: Mapping[str, RuntimeController], files: Mapping[str, str]
) -> list[UnitFileChange]:
    changes: list[UnitFileChange] = []
    for runtime_id, change in rewrites.items():
        name = controllers[runtime_id].unit_name
        try:
            text = change_record(files[name], change)
        except (KeyError, RecordUnreadable):
            continue  # no file of ours: there is nothing that could bring it back
        if text != files[name]:
            changes.append(UnitFileChange(name, text))
    return changes
