"""`EmbeddedBackend`: the supervisor as the daemon sees it, through its control socket and its files.

One connection carries all calls and the stream of changes. It is kept alive by `run`: lost, it is opened again after
a backoff; silent for too long, it counts as lost. What was asked meanwhile raises `BackendLost`; what the supervisor
had begun goes on. Unit files are written here and logs are read here: neither needs a supervisor.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from weakref import WeakSet

from core.errors import UsageError
from core.paths import Layout
from core.tasks import Backoff
from units.backend import BackendLost, UnitFileChange, UnitStatus
from units.embedded.connection import Connection
from units.embedded.logs import follow_lines, read_last_lines
from units.embedded.protocol import CONTROL_SOCKET, Answer, Operation
from units.embedded.site import log_path
from units.systemd.files import read_unit_files, write_unit_files

_CALL_S = 10.0
_JOB_S = 3600.0
"""A start may wait for a model to load; the unit's own timeouts end it much earlier."""

_MAX_CHANGES = 10_000


class EmbeddedBackend:
    """A `units.backend.UnitBackend`."""

    name = "embedded"

    def __init__(self, layout: Layout, *, call_s: float = _CALL_S, job_s: float = _JOB_S) -> None:
        self._layout = layout
        self._call_s = call_s
        self._job_s = job_s
        self._connection: Connection | None = None
        self._connected = asyncio.Event()
        self._streams: WeakSet[_ChangeStream] = WeakSet()

    @classmethod
    def from_layout(cls, layout: Layout) -> "EmbeddedBackend":
        """As `units.registry` makes every back end."""
        return cls(layout)

    async def run(self) -> None:
        """Keep connected until cancelled."""
        backoff = Backoff(0.05, 2.0)
        while True:
            try:
                await self._run_connection(backoff)
            except BackendLost:
                await asyncio.sleep(backoff.next_s())

    async def _run_connection(self, backoff: Backoff) -> None:
        connection = await Connection.open(self._layout.supervisor_state / CONTROL_SOCKET, self._call_s)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(_run_quietly(connection, self._publish))
            try:
                answer = await connection.call(Operation.SUBSCRIBE, timeout_s=self._call_s)
                backoff.reset()
                self._publish(answer.statuses)
                self._connection = connection
                self._connected.set()
                await asyncio.wait((reading,))
            except BackendLost:
                reading.cancel()
            finally:
                self._connection = None
                self._connected.clear()
        raise BackendLost("the connection to the supervisor ended")

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set()

    async def wait_ready(self) -> None:
        await self._connected.wait()

    async def read_files(self) -> dict[str, str]:
        return read_unit_files(self._layout.units)

    async def apply_files(self, changes: Sequence[UnitFileChange]) -> None:
        write_unit_files(self._layout.units, changes)
        await self._call(Operation.RELOAD)

    async def apply_drop_in(self, unit: str, text: str | None, *, users: Sequence[str]) -> bool:
        return False  # `llmgw up` holds the socket; there is no static unit here

    async def read_status(self, name: str) -> UnitStatus:
        return (await self._call(Operation.STATUS, name)).statuses[0]

    async def read_statuses(self) -> list[UnitStatus]:
        """All units at once."""
        return (await self._call(Operation.LIST)).statuses

    async def start(self, name: str) -> None:
        await self._call(Operation.START, name, timeout_s=self._job_s)

    async def stop(self, name: str) -> None:
        await self._call(Operation.STOP, name, timeout_s=self._job_s)

    async def restart(self, name: str) -> None:
        await self._call(Operation.RESTART, name, timeout_s=self._job_s)

    async def kill(self, name: str, signal: int) -> None:
        await self._call(Operation.KILL, name, signal=signal)

    async def reset_failed(self, name: str) -> None:
        await self._call(Operation.RESET_FAILED, name)

    async def read_pids(self, name: str) -> list[int]:
        return (await self._call(Operation.PIDS, name)).pids

    async def shutdown(self) -> None:
        """Stop all units side by side; then the supervisor ends. For whoever started it (`llmgw up`)."""
        await self._call(Operation.SHUTDOWN, timeout_s=self._job_s)

    def changes(self) -> AsyncIterator[UnitStatus]:
        """From this call on, not only from the first iteration; until the consumer drops the iterator."""
        stream = _ChangeStream()
        self._streams.add(stream)
        return stream

    async def read_log(self, name: str, lines: int) -> list[str]:
        _check_name(name)
        return read_last_lines(log_path(self._layout.logs, name), lines)

    def follow_log(self, name: str, lines: int) -> AsyncIterator[str]:
        _check_name(name)
        return follow_lines(log_path(self._layout.logs, name), lines)

    async def _call(
        self, operation: Operation, name: str = "", *, signal: int = 0, timeout_s: float | None = None
    ) -> Answer:
        """Over the current connection; one that is just being opened is waited for."""
        try:
            async with asyncio.timeout(self._call_s):
                await self._connected.wait()
        except TimeoutError:
            raise BackendLost(
                f"no embedded supervisor answers below {self._layout.supervisor_state}",
                hint="is it running? `python -m units.embedded --state DIR`",
            ) from None
        if self._connection is None:
            raise BackendLost("the connection to the supervisor is lost")
        return await self._connection.call(operation, name, signal=signal, timeout_s=timeout_s or self._call_s)

    def _publish(self, statuses: Sequence[UnitStatus]) -> None:
        for stream in list(self._streams):
            for status in statuses:
                stream.put(status)


async def _run_quietly(connection: Connection, publish: Callable[[Sequence[UnitStatus]], None]) -> None:
    """Until the connection is lost, whichever way."""
    try:
        await connection.run(publish)
    except BackendLost:
        return


class _ChangeStream:
    """What one consumer of `changes` has not taken yet. A slow one gets the latest of each unit, and loses none."""

    def __init__(self) -> None:
        self._waiting: deque[UnitStatus] = deque()
        self._has_more = asyncio.Event()

    def put(self, status: UnitStatus) -> None:
        if len(self._waiting) >= _MAX_CHANGES:
            self._waiting = deque({waiting.name: waiting for waiting in self._waiting}.values())
        self._waiting.append(status)
        self._has_more.set()

    def __aiter__(self) -> "_ChangeStream":
        return self

    async def __anext__(self) -> UnitStatus:
        while not self._waiting:
            self._has_more.clear()
            await self._has_more.wait()
        return self._waiting.popleft()


def _check_name(name: str) -> None:
    """Names become paths: one that leads elsewhere is refused."""
    is_plain = name.endswith(".service") and not name.startswith(".") and not {"/", "\0", "\n"} & set(name)
    if not is_plain or len(os.fsencode(name)) > 240:
        raise UsageError(f"{name!r} is not the name of a service unit", code="unit_name_invalid")
