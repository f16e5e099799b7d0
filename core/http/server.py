"""The HTTP service: an ASGI application, the connections to it, and the tasks that answer.

Used by every program of ours that speaks HTTP: the gateway's workers (`core.http.worker`), the daemon's socket,
gates and the sim engine. It owns every task that it starts; `drain` ends them.

    service = HttpService(app)
    await service.startup()
    server = await serve_unix(service, path, mode=0o660)
    ...
    server.close()
    await service.drain(10.0)
    await service.shutdown()
"""

import asyncio
import os
import socket
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from core.http.asgi import AsgiApp, ClientDisconnectedError
from core.http.direct import DirectApp, StreamedApp, WebSocketApp
from core.http.lifespan import Lifespan
from core.http.limits import DEFAULT_LIMITS, HttpLimits
from core.http.protocol import ServerConnection
from core.http.stream import ClientStream
from core.http.sweep import Sweeper
from core.http.tcp import configure_listener
from core.http.websocket import WebSocket

OnError = Callable[[str, BaseException], None]
"""Hears of an error that no handler of the application took: an event's name and the error."""

_BACKLOG = 4096


class HttpService:
    """See the module."""

    def __init__(
        self,
        app: AsgiApp,
        *,
        limits: HttpLimits = DEFAULT_LIMITS,
        on_error: OnError | None = None,
        cancel_on_disconnect: bool = True,
    ) -> None:
        """`cancel_on_disconnect`: a request whose client left is cancelled (relayed ones see to it themselves)."""
        self.limits = limits
        self.is_draining = False
        self.streamed_paths: frozenset[bytes] = app.streamed_paths if isinstance(app, StreamedApp) else frozenset()
        self.form_limits = replace(limits, body_bytes=limits.form_bytes)
        self._app = app
        self._direct = app.plan_directly if isinstance(app, DirectApp) else None
        self._takes_websocket = app.takes_websocket if isinstance(app, WebSocketApp) else None
        self._on_error = on_error
        self._cancels = cancel_on_disconnect
        self._lifespan = Lifespan(app)
        self._connections: set[ServerConnection | WebSocket] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._sweeper = Sweeper(limits.sweep_s, self._sweep)

    def protocol_factory(self) -> ServerConnection:
        """For `loop.create_server` and its like."""
        return ServerConnection(self)

    async def startup(self) -> None:
        """Run the application's startup. Raises: LifespanError when it fails."""
        await self._lifespan.startup()

    async def shutdown(self) -> None:
        """Run the application's shutdown, after `drain`."""
        await self._lifespan.shutdown()

    async def drain(self, timeout_s: float | None) -> bool:
        """Let answers under way come to their end, then close. False when the time was over before.

        The caller has closed its listeners. None: without a limit.
        """
        self.is_draining = True
        for connection in list(self._connections):
            connection.drain()
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
                return True
        except TimeoutError:
            return False
        finally:
            await self._end()

    def abort(self) -> None:
        """Close every connection now; what was being answered is cancelled."""
        for connection in list(self._connections):
            connection.abort()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    # what connections call (core.http.protocol.Service)

    def takes_websocket(self, path: bytes) -> bool:
        return self._takes_websocket is not None and self._takes_websocket(path)

    def opened(self, connection: ServerConnection | WebSocket) -> None:
        self._connections.add(connection)
        self._idle.clear()
        self._sweeper.wake()

    def closed(self, connection: ServerConnection | WebSocket) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._idle.set()

    def run(self, stream: ClientStream) -> None:
        if self._direct is not None:
            try:
                plan = self._direct(stream)
            except Exception as error:  # noqa: BLE001 - the boundary of one request
                self._report(error)
                plan = None
            if plan is not None:
                stream.relay_directly(plan)
                return
        self.dispatch(stream)

    def dispatch(self, stream: ClientStream) -> None:
        """Have the application answer."""
        task = asyncio.get_running_loop().create_task(self._answer(stream))
        stream.task = task
        self._tasks.add(task)

    def abandoned(self, stream: ClientStream) -> None:
        if self._cancels and stream.task is not None and not stream.is_relayed:
            stream.task.cancel()

    async def _answer(self, stream: ClientStream) -> None:
        failed = True
        try:
            await self._app(stream.scope(), stream.receive, stream.send)
            failed = False
        except ClientDisconnectedError:
            pass
        except Exception as error:  # noqa: BLE001 - the boundary of one request
            self._report(error)
        finally:
            task, stream.task = stream.task, None
            if task is not None:
                self._tasks.discard(task)
            stream.application_over(failed)

    def _report(self, error: BaseException) -> None:
        if self._on_error is not None:
            self._on_error("request_failed", error)

    async def _end(self) -> None:
        self.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._sweeper.stop()

    def _sweep(self, now: float) -> bool:
        for connection in list(self._connections):
            connection.check_deadline(now)
        return bool(self._connections)


async def serve_tcp(service: HttpService, host: str, port: int, *, backlog: int = _BACKLOG) -> asyncio.Server:
    """Listen on an address; port 0 lets the kernel choose (`server.sockets[0].getsockname()`)."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        service.protocol_factory, host, port, backlog=backlog, reuse_address=True, start_serving=False
    )
    for sock in server.sockets:
        configure_listener(sock)
    await server.start_serving()
    return server


async def serve_unix(
    service: HttpService, path: Path, *, mode: int, uid: int = -1, gid: int = -1, backlog: int = _BACKLOG
) -> asyncio.Server:
    """Listen on a unix socket with these permissions; a socket that was left behind is replaced.

    Raises: OSError, FileExistsError when something else than a socket is in the way.
    """
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        raise FileExistsError(f"{path} is in the way and no socket")
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        # Nobody can connect before `listen`, so there is no moment with wider permissions.
        sock.bind(os.fspath(path))
        path.chmod(mode)
        os.chown(path, uid, gid)
        sock.listen(backlog)
        return await asyncio.get_running_loop().create_unix_server(service.protocol_factory, sock=sock, backlog=backlog)
    except BaseException:
        sock.close()
        raise
