"""One connection to the supervisor's control socket: calls with answers, and changes as they come."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from core.errors import DependencyError
from units.backend import BackendLost, UnitJobFailed, UnitStatus
from units.embedded.protocol import CHANGE_ID, MAX_ANSWER_BYTES, Answer, Operation, Request, encode_line

_PING_S = 5.0
_SILENCE_S = 15.0
"""A supervisor that has not answered a ping for so long is stopped or stuck: its connection counts as lost."""


class Connection:
    """`open`, then `run` until it ends; `call` from any task."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        self._last_id = CHANGE_ID
        self._is_lost = False

    @classmethod
    async def open(cls, path: Path, timeout_s: float) -> "Connection":
        """Connect. Raises: BackendLost."""
        try:
            async with asyncio.timeout(timeout_s):
                return cls(*await asyncio.open_unix_connection(path, limit=MAX_ANSWER_BYTES))
        except (OSError, TimeoutError) as error:
            raise BackendLost(
                f"the supervisor does not answer on {path}: {error}", hint="is the embedded supervisor running?"
            ) from error

    async def run(self, take_changes: Callable[[Sequence[UnitStatus]], None]) -> None:
        """Read until the connection ends. Raises: BackendLost, always."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(take_changes))
                tasks.create_task(self._keep_alive())
        except ExceptionGroup as group:  # not `except*`: what that raises leaves in a group again
            lost, others = group.split(BackendLost)
            if others is not None or lost is None:
                raise
            raise BackendLost(str(lost.exceptions[0])) from None
        finally:
            self._lose()

    async def _read(self, take_changes: Callable[[Sequence[UnitStatus]], None]) -> None:
        while True:
            try:
                line = await self._reader.readline()
                answer = msgspec.json.decode(line, type=Answer) if line else None
            except (OSError, ValueError, msgspec.DecodeError) as error:
                raise BackendLost(f"the supervisor's answers cannot be read: {error}") from error
            if answer is None:
                raise BackendLost("the supervisor closed the connection")
            if answer.id == CHANGE_ID:
                take_changes(answer.statuses)
            elif (waiter := self._pending.pop(answer.id, None)) is not None and not waiter.done():
                waiter.set_result(answer)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(_PING_S)
            await self.call(Operation.PING, timeout_s=_SILENCE_S)

    async def call(self, operation: Operation, unit: str = "", *, signal: int = 0, timeout_s: float) -> Answer:
        """Ask, and wait for the answer. Raises: BackendLost, or the error that the supervisor answers with."""
        if self._is_lost:
            raise BackendLost("the connection to the supervisor is lost")
        self._last_id += 1
        request_id = self._last_id
        waiter: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = waiter
        try:
            async with asyncio.timeout(timeout_s):
                self._writer.write(encode_line(Request(id=request_id, op=operation, unit=unit, signal=signal)))
                await self._writer.drain()
                answer = await waiter
        except TimeoutError as error:
            raise BackendLost(f"the supervisor did not answer `{operation} {unit}` in {timeout_s:g} s") from error
        except OSError as error:
            raise BackendLost(f"the connection to the supervisor broke: {error}") from error
        finally:
            self._pending.pop(request_id, None)
        if answer.error is not None:
            kind = UnitJobFailed if answer.error.code in _JOB_CODES else _SupervisorRefused
            raise kind(answer.error.message, hint=answer.error.hint, code=answer.error.code)
        return answer

    def _lose(self) -> None:
        """Tell everybody who waits."""
        self._is_lost = True
        self._writer.close()
        for waiter in self._pending.values():
            if not waiter.done():
                waiter.set_exception(BackendLost("the connection to the supervisor is lost"))


class _SupervisorRefused(DependencyError):
    code = "supervisor_refused"


_JOB_CODES = frozenset({UnitJobFailed.code, "unit_not_found", "shutting_down"})
