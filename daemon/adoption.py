"""Taking over the units that were there before this daemon: their files are the record of what runs."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from core.log import EventLogger
from core.runtime import Authority, AuthorityScope
from daemon.runtimes.controller import RuntimeController
from daemon.runtimes.prepare import Preparer
from daemon.runtimes.spec import start_deadline_s
from units.backend import UnitBackend, UnitFileChange
from units.model import UnitRecord
from units.names import engine_unit_name, gate_unit_name
from units.record import RecordUnreadable, parse_record

_AT_ONCE = 16


def parse_files(files: Mapping[str, str]) -> tuple[dict[str, UnitRecord], dict[str, str]]:
    """The records of generated unit files by name; and what is wrong with those that have none to be trusted. Pure."""
    records: dict[str, UnitRecord] = {}
    unreadable: dict[str, str] = {}
    for name, text in files.items():
        try:
            records[name] = parse_record(text)
        except RecordUnreadable as error:
            unreadable[name] = error.message
    return records, unreadable


async def read_records(backend: UnitBackend, node: str, log: EventLogger) -> list[UnitRecord]:
    """The records of all engine units of ours; a file that we cannot read is left alone and told.

    What is local belongs to this node, whatever it was called when the unit was written.
    """
    records = []
    found, unreadable = parse_files(await backend.read_files())
    for name, error in unreadable.items():
        log.warning("unit_not_ours", unit=name, error=error)
    for name, record in found.items():
        if record.kind == "engine" and engine_unit_name(record.runtime_id) == name:
            local = record.authority.scope is AuthorityScope.LOCAL
            records.append(replace(record, authority=Authority(owner=node)) if local else record)
    return records


async def remove_stray_gates(backend: UnitBackend, log: EventLogger) -> None:
    """Take away gates whose engine's unit file is gone: a daemon died between two files."""
    files = await backend.read_files()
    strays = find_stray_gates(files)
    for name in strays:
        log.info("stray_gate_removed", unit=name)
        await backend.stop(name)
    if strays:
        await backend.apply_files([UnitFileChange(name, None) for name in strays])


def find_stray_gates(files: Mapping[str, str]) -> list[str]:
    """Gates of ours without the engine that they stand before. Pure."""
    strays = []
    for name, text in files.items():
        try:
            record = parse_record(text)
        except RecordUnreadable:
            continue  # told already; a file that we cannot read is left alone
        runtime_id = record.runtime_id
        is_ours = record.kind == "gate" and gate_unit_name(runtime_id) == name
        if is_ours and engine_unit_name(runtime_id) not in files:
            strays.append(name)
    return strays


async def adopt_all(
    records: Sequence[UnitRecord],
    controller_of: Callable[[str], RuntimeController],
    preparer: Preparer,
    backend: UnitBackend,
) -> None:
    """Give each record to its controller with the unit's status; a few at a time, since each may ask an engine."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def adopt(record: UnitRecord) -> None:
        controller = controller_of(record.runtime_id)
        async with gate:
            status = await backend.read_status(controller.unit_name)
            runtime = preparer.config.runtimes.get(record.runtime_id)
            probe = preparer.adopt_probe(record.runtime_id, record) if runtime else None
            deadline_s = start_deadline_s(runtime, 0) if runtime else 0.0
            await controller.adopt(record, probe, status, deadline_s=deadline_s)

    async with asyncio.TaskGroup() as group:
        for record in records:
            group.create_task(adopt(record))
