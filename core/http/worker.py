"""The gunicorn worker of the gateway: our own server on uvloop, in a process that gunicorn's arbiter looks after.

The arbiter owns the listening sockets (its own, or systemd's), starts workers, replaces the dead, and kills those
that do not report for `timeout` seconds. A worker listens only when the application's startup is through, so no
request meets one that knows nothing yet; then it tells the service manager that the service is ready.
TERM: finish what is under way, for as long as `graceful_timeout` allows. INT, QUIT: at once.
"""

import asyncio
import os
import signal
import socket
import ssl
import sys
import time

import uvloop
from gunicorn.workers.base import Worker

from core.errors import LlmgwError
from core.http.malloc import keep_freed_memory
from core.http.server import HttpService
from core.http.tcp import configure_listener
from core.http.tls import HANDSHAKE_TIMEOUT_S, SecureApp, load_context
from core.notify import Notifier

NOTIFY_VARIABLE = "LLMGW_NOTIFY_SOCKET"
"""Where `packaging/gunicorn.conf.py` keeps NOTIFY_SOCKET from the arbiter, which would say READY too early."""

_REPORT_S = 0.5
_STARTUP_BACKOFF_S = 1.0


_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


def hold_stops_over_forks() -> None:
    """For the arbiter, once: what tells a worker to stop waits until the worker can hear it.

    After the fork a worker still has the arbiter's handlers, which put a signal into a queue that nobody reads there;
    and uvloop hears of signals only while it runs, which is when the application has been loaded. What came before
    would be lost: the worker would serve on, and the arbiter wait for it as long as it waits for streams.
    """
    os.register_at_fork(before=_hold_signals, after_in_parent=_let_signals_in)


def _hold_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)


def _let_signals_in() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)


class GatewayWorker(Worker):
    """See the module. Everything of it runs in the forked process."""

    def init_process(self) -> None:
        keep_freed_memory()
        self._loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._stopping = asyncio.Event()
        self._service: HttpService | None = None
        self._tls: ssl.SSLContext | None = None
        super().init_process()

    def init_signals(self) -> None:
        """Signals go through the loop: a handler that runs between two byte codes could meet any state."""
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        self._loop.add_signal_handler(signal.SIGTERM, self._stop)
        self._loop.add_signal_handler(signal.SIGINT, self._stop_now)
        self._loop.add_signal_handler(signal.SIGQUIT, self._stop_now)
        self._loop.add_signal_handler(signal.SIGUSR1, self.log.reopen_files)
        self._loop.add_signal_handler(signal.SIGWINCH, _ignore)
        signal.signal(signal.SIGABRT, self.handle_abort)

    def run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except LlmgwError as error:
            self.log.error("%s", error.render())
            # The arbiter starts another at once. It must not be told "cannot boot" (exit code 3): it would end the
            # other workers too, and they may serve well.
            time.sleep(_STARTUP_BACKOFF_S)
            sys.exit(1)
        finally:
            self._loop.close()

    def _stop(self) -> None:
        self.alive = False
        self._stopping.set()

    def _stop_now(self) -> None:
        self._stop()
        if self._service is not None:
            self._service.abort()

    async def _serve(self) -> None:
        _let_signals_in()
        reporter = self._loop.create_task(self._report())
        try:
            service = self._service = HttpService(self.wsgi, on_error=self._failed)
            starting = self._loop.create_task(service.startup())
            stopping = self._loop.create_task(self._stopping.wait())
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                return
            starting.result()
            files = self.wsgi.tls_files() if isinstance(self.wsgi, SecureApp) else None
            self._tls = load_context(files) if files is not None else None
            servers = [await self._listen(service, listener.sock) for listener in self.sockets]
            Notifier(os.environ.get(NOTIFY_VARIABLE) or None).ready("serving")
            await stopping
            await self._close(service, servers)
            if not await service.drain(self.cfg.graceful_timeout):
                self.log.warning("requests were cut off: they did not end within graceful_timeout")
            await service.shutdown()
        finally:
            reporter.cancel()

    async def _listen(self, service: HttpService, sock: socket.socket) -> asyncio.AbstractServer:
        # The loop calls listen() again, with a backlog of 100 unless it is told otherwise.
        backlog = self.cfg.backlog
        configure_listener(sock)
        if sock.family == socket.AF_UNIX:
            return await self._loop.create_unix_server(service.protocol_factory, sock=sock, backlog=backlog)
        return await self._loop.create_server(
            service.protocol_factory, sock=sock, backlog=backlog, ssl=self._tls, ssl_handshake_timeout=self._handshake_s
        )

    @property
    def _handshake_s(self) -> float | None:
        return HANDSHAKE_TIMEOUT_S if self._tls is not None else None

    async def _close(self, service: HttpService, servers: list[asyncio.AbstractServer]) -> None:
        """Stop listening, and lose none of the connections that wait to be accepted.

        With `reuse_port` the queue is this worker's own: closing the socket would reset all that are in it.
        """
        kept = [listener.sock.dup() for listener in self.sockets]
        for server in servers:
            server.close()
        await asyncio.sleep(0)  # the loop has let go of the sockets when it turned once
        for sock in kept:
            for connection in _accept_all(sock):
                tls = self._tls if connection.family != socket.AF_UNIX else None
                await self._loop.connect_accepted_socket(service.protocol_factory, connection, ssl=tls)

    async def _report(self) -> None:
        """Tell the arbiter that the loop still turns, and end when there is no arbiter any more."""
        while True:
            self.notify()
            if os.getppid() != self.ppid:
                self._stop()
            await asyncio.sleep(_REPORT_S)

    def _failed(self, event: str, error: BaseException) -> None:
        self.log.error("%s", event, exc_info=error)


def _accept_all(sock: socket.socket) -> list[socket.socket]:
    """Take what waits in the queue, and close it before the next one can come."""
    accepted: list[socket.socket] = []
    with sock:
        sock.setblocking(False)
        try:
            while True:
                accepted.append(sock.accept()[0])
        except OSError:  # BlockingIOError: there are no more; another: there will be none
            return accepted


def _ignore() -> None:
    """SIGWINCH is the arbiter's affair."""
