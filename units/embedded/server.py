"""The control socket. Its peer is named by the kernel: root, or the user that the supervisor runs as.

Whatever comes in, the answer is a message: garbage is answered with an error on the same connection, a line that is
too long ends it. A client that does not read its answers is dropped; it comes back and is told everything again.
"""

import asyncio
import os
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec

from core.api import ErrorBody
from core.errors import LlmgwError
from core.log import EventLogger
from units.backend import UnitStatus
from units.embedded.protocol import MAX_LINE_BYTES, Answer, Operation, Request, encode_line
from units.embedded.supervisor import Supervisor

_MAX_BUFFERED_BYTES = 1 << 22
_MAX_IN_FLIGHT = 1024
_LAST_WORDS_S = 0.05
"""Between the answer to a shutdown and our end, so that it is read."""
_CREDENTIALS = struct.Struct("3i")


class ControlServer:
    """Serves until cancelled; `is_finished` is set once a shutdown was carried out and answered."""

    def __init__(self, supervisor: Supervisor, path: Path, log: EventLogger) -> None:
        self.is_finished = asyncio.Event()
        self._supervisor = supervisor
        self._path = path
        self._log = log

    async def open(self) -> asyncio.Server:
        """Bind the socket, replacing one that an earlier supervisor left."""
        self._path.unlink(missing_ok=True)
        old_mask = os.umask(0o177)
        try:
            return await asyncio.start_unix_server(self._serve, self._path, limit=MAX_LINE_BYTES, backlog=512)
        finally:
            os.umask(old_mask)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        uid = _read_peer_uid(writer)
        if uid not in (0, os.geteuid()):
            self._log.warning("control_peer_refused", uid=uid)
            writer.close()
            return
        connection = _Connection(self._supervisor, reader, writer, self.is_finished.set)
        try:
            await connection.run()
        except (OSError, asyncio.LimitOverrunError, ValueError):
            pass  # the peer is gone, or sent a line that never ends
        except Exception as error:  # noqa: BLE001 - a server's per-connection boundary
            self._log.error("control_connection_broke", error=repr(error))
        finally:
            writer.close()


def _read_peer_uid(writer: asyncio.StreamWriter) -> int:
    peer: socket.socket = writer.get_extra_info("socket")
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])


class _Connection:
    def __init__(
        self,
        supervisor: Supervisor,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        finish: Callable[[], None],
    ) -> None:
        self._supervisor = supervisor
        self._reader = reader
        self._writer = writer
        self._finish = finish
        self._slots = asyncio.Semaphore(_MAX_IN_FLIGHT)

    async def run(self) -> None:
        """Until the peer closes. Jobs that it asked for go on without it."""
        running: set[asyncio.Task[None]] = set()
        try:
            async with asyncio.TaskGroup() as tasks:
                while line := await self._reader.readline():
                    await self._slots.acquire()
                    task = tasks.create_task(self._handle(line))
                    running.add(task)
                    task.add_done_callback(running.discard)
                for task in running:
                    task.cancel()
        finally:
            self._supervisor.listeners.discard(self._tell_change)

    async def _handle(self, line: bytes) -> None:
        """One request, one answer."""
        try:
            await self._send(await self._answer(line))
        except OSError:
            pass  # the reader notices too, and ends the connection
        finally:
            self._slots.release()

    async def _answer(self, line: bytes) -> Answer:
        try:
            request = msgspec.json.decode(line, type=Request)
        except msgspec.DecodeError as error:
            return _refuse(0, "bad_request", f"not a request: {error}")
        try:
            return await self._carry_out(request)
        except LlmgwError as error:
            return Answer(id=request.id, error=ErrorBody(code=error.code, message=error.message, hint=error.hint))

    async def _carry_out(self, request: Request) -> Answer:
        supervisor, name = self._supervisor, request.unit
        match request.op:
            case Operation.STATUS:
                return Answer(id=request.id, statuses=[supervisor.read_status(name)])
            case Operation.LIST:
                return Answer(id=request.id, statuses=supervisor.read_statuses())
            case Operation.PIDS:
                return Answer(id=request.id, pids=supervisor.read_pids(name))
            case Operation.START:
                await supervisor.carry_out(supervisor.start(name))
            case Operation.STOP:
                await supervisor.carry_out(supervisor.stop(name))
            case Operation.RESTART:
                await supervisor.carry_out(supervisor.restart(name))
            case Operation.SHUTDOWN:
                await supervisor.carry_out(supervisor.shutdown())
                asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._finish)
            case _:
                return self._carry_out_at_once(request)
        return Answer(id=request.id)

    def _carry_out_at_once(self, request: Request) -> Answer:
        """What needs no waiting."""
        match request.op:
            case Operation.KILL:
                if request.signal not in signal.valid_signals():
                    return _refuse(request.id, "bad_request", f"there is no signal {request.signal}")
                self._supervisor.send_signal(request.unit, request.signal)
            case Operation.RESET_FAILED:
                self._supervisor.reset_failed(request.unit)
            case Operation.RELOAD:
                self._supervisor.reload()
            case Operation.SUBSCRIBE:
                self._supervisor.listeners.add(self._tell_change)
                return Answer(id=request.id, statuses=self._supervisor.read_statuses())
            case _:
                pass  # ping
        return Answer(id=request.id)

    def _tell_change(self, status: UnitStatus) -> None:
        if self._writer.transport.get_write_buffer_size() > _MAX_BUFFERED_BYTES:
            self._supervisor.listeners.discard(self._tell_change)
            self._writer.transport.abort()
        else:
            self._writer.write(encode_line(Answer(statuses=[status])))

    async def _send(self, answer: Answer) -> None:
        self._writer.write(encode_line(answer))
        await self._writer.drain()


def _refuse(request_id: int, code: str, message: str) -> Answer:
    return Answer(id=request_id, error=ErrorBody(code=code, message=message))
