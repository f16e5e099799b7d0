"""The gunicorn worker of the gateway: our own server on uvloop, in a process that gunicorn's arbiter looks after.

The arbiter owns the listening sockets (its own, or systemd's), starts workers, replaces the dead, and kills those
that do not report for `timeout` seconds. A worker listens only when the application's startup is through, so no
request meets one that knows nothing yet; then it tells the service manager that the service is ready.
TERM: finish what is under way, for as long as `graceful_timeout` allows. INT, QUIT: at once.
"""

import asyncio
import os
import signal
import sys
import time

import uvloop
from gunicorn.workers.base import Worker

from core.errors import LlmgwError
from core.http.certificate import LOOK_S, Certificate
from core.http.kept_tls import KeptTls
from core.http.listeners import Listeners
from core.http.malloc import keep_freed_memory
from core.http.server import HttpService
from core.http.tls import SecureApp
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
        watching: asyncio.Task[None] | None = None
        try:
            service = self._service = HttpService(self.wsgi, on_error=self._failed)
            starting = self._loop.create_task(service.startup())
            stopping = self._loop.create_task(self._stopping.wait())
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                return
            starting.result()
            certificate = self._find_certificate()
            sockets = [listener.sock for listener in self.sockets]
            listeners = Listeners(self._loop, service.protocol_factory, sockets, self.cfg.backlog)
            await listeners.open(certificate.context if certificate is not None else None)
            Notifier(os.environ.get(NOTIFY_VARIABLE) or None).ready("serving")
            if certificate is not None:
                watching = self._loop.create_task(self._watch(certificate, listeners))
            await stopping
            if watching is not None:
                watching.cancel()
            await listeners.close()
            if not await service.drain(self.cfg.graceful_timeout):
                self.log.warning("requests were cut off: they did not end within graceful_timeout")
            await service.shutdown()
        finally:
            reporter.cancel()

    def _find_certificate(self) -> Certificate | None:
        """What to serve with; None: the application knows of no TLS. Raises: TlsUnusable."""
        app: object = self.wsgi
        if not isinstance(app, SecureApp):
            return None
        certificate = Certificate(app, KeptTls.from_environment(os.environ), time.time)
        certificate.begin()
        return certificate

    async def _watch(self, certificate: Certificate, listeners: Listeners) -> None:
        """Take up another certificate when there is one."""
        stale = False
        while True:
            await asyncio.sleep(LOOK_S)
            stale = certificate.look() or stale
            if stale:
                try:
                    await listeners.secure(certificate.context)
                    stale = False
                except OSError as error:  # no descriptor is free: at the next look there may be one
                    self.log.error("cannot listen with the new certificate: %s", error)

    async def _report(self) -> None:
        """Tell the arbiter that the loop still turns, and end when there is no arbiter any more."""
        while True:
            self.notify()
            if os.getppid() != self.ppid:
                self._stop()
            await asyncio.sleep(_REPORT_S)

    def _failed(self, event: str, error: BaseException) -> None:
        self.log.error("%s", event, exc_info=error)


def _ignore() -> None:
    """SIGWINCH is the arbiter's affair."""
