"""Carries out what `daemon/reconcile.py` decided: writes unit files in one batch, then lets each runtime's job run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from core.errors import LlmgwError
from core.hardware import Card
from core.log import EventLogger
from daemon.reconcile import Action, Hold, Note, Remove, Start, Stop
from daemon.runtimes.controller import RuntimeController, held_record
from daemon.runtimes.devices import Placement
from daemon.runtimes.ports import is_bindable
from daemon.runtimes.prepare import Prepared, Preparer
from daemon.runtimes.spec import spec_hash
from units.backend import UnitBackend, UnitFileChange
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

        Raises: LlmgwError when the files could not be written; then nothing began.
        """
        if not actions:
            return
        drain_s = preparer.config.runtime_policy.drain_timeout_ms / 1000
        starts = self._prepare([a for a in actions if isinstance(a, Start)], controllers, preparer)
        stops = [a for a in actions if isinstance(a, Stop)]
        removes = [a for a in actions if isinstance(a, Remove)]
        holds = [a.runtime_id for a in actions if isinstance(a, Hold) or (isinstance(a, Stop) and a.hold)]
        notes = [a.runtime_id for a in actions if isinstance(a, Note)]
        files = await self._backend.read_files() if holds or notes else {}
        changes = [
            *(UnitFileChange(prepared.unit_name, prepared.unit_text) for prepared in starts.values()),
            *self._rewritten([*holds, *notes], controllers, files, held=frozenset(holds)),
            *(UnitFileChange(controllers[remove.runtime_id].unit_name, None) for remove in removes),
        ]
        if changes:
            await self._backend.apply_files(changes)
        for runtime_id in holds:
            controllers[runtime_id].unit_held()
        for runtime_id in notes:
            controllers[runtime_id].unit_noted()
        for remove in removes:
            controllers[remove.runtime_id].unit_removed()
        for stop in stops:
            self._log.info("runtime_stop", runtime=stop.runtime_id, reason=stop.reason)
            controllers[stop.runtime_id].begin_stop(stop.reason, drain_s)
        for runtime_id, prepared in starts.items():
            self._log.info("runtime_start", runtime=runtime_id, port=prepared.record.ports[0])
            controllers[runtime_id].begin_start(prepared)

    def _prepare(
        self, starts: Sequence[Start], controllers: Mapping[str, RuntimeController], preparer: Preparer
    ) -> dict[str, Prepared]:
        """Prepare each; one that cannot be is failed with the reason and hinders no other."""
        taken = {c.port for c in controllers.values() if c.port}
        taken |= {r.port for r in preparer.config.runtimes.values() if r.port is not None}
        taken.add(preparer.config.server.port)
        prepared: dict[str, Prepared] = {}
        for start in starts:
            controller = controllers[start.runtime_id]
            others = taken - {controller.port}
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

    def _rewritten(
        self,
        runtime_ids: Sequence[str],
        controllers: Mapping[str, RuntimeController],
        files: Mapping[str, str],
        *,
        held: frozenset[str],
    ) -> list[UnitFileChange]:
        """Files whose record changes: held by an operator, or given up."""
        changes: list[UnitFileChange] = []
        for runtime_id in runtime_ids:
            name, given_up = controllers[runtime_id].unit_name, controllers[runtime_id].given_up
            change = held_record if runtime_id in held else partial(replace, failure=given_up)
            try:
                text = change_record(files[name], change)
            except (KeyError, RecordUnreadable):
                continue  # no file of ours: there is nothing that could bring it back
            if text != files[name]:
                changes.append(UnitFileChange(name, text))
        return changes
