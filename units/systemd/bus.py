"""The system bus, for an asyncio program: the one file that touches pydbus and GLib.

GLib has a loop of its own, and replacing asyncio's by it would cost uvloop. So one thread runs a GLib loop over a
context of its own, connections and subscriptions are made inside that thread, calls are Gio's asynchronous ones (no
thread waits for a reply), and replies and signals come back by `call_soon_threadsafe`. Nothing of GLib leaves this
file: arguments and replies are plain Python values, errors are ours.

A `Bus` has at most one connection. `connect` makes it, `wait_closed` returns when it is gone, and then `connect` can
be called again: that is how a restart of dbus-daemon is survived (`exit_on_close` would end the process with it).
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pydbus
from gi.repository import Gio, GLib
from pydbus.bus import Bus as Connection

from core.errors import DependencyError, LlmgwError
from units.backend import BackendLost

T = TypeVar("T")

SYSTEM_BUS = "unix:path=/run/dbus/system_bus_socket"
SYSTEMD = "org.freedesktop.systemd1"
MANAGER = "org.freedesktop.systemd1.Manager"
PROPERTIES = "org.freedesktop.DBus.Properties"

MAX_CALLS = 32
"""Calls in flight: dbus-daemon refuses more than 128 unanswered ones on one connection."""

_CLOSE_TIMEOUT_S = 3.0

_LOST = ("NoReply", "Disconnected", "ServiceUnknown", "NameHasNoOwner", "TimedOut", "Timeout", "NoServer")


class BusCallFailed(DependencyError):
    """The other side answered with an error; `name` is its D-Bus name."""

    code = "dbus_call_failed"

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True, slots=True)
class Signals:
    """Whom to tell; called on the asyncio loop."""

    job_removed: Callable[[str, str, str], None]
    """Job's path, unit's name, result."""
    unit_changed: Callable[[str], None]
    """The object path of a unit of which a property changed."""
    unit_paths: tuple[str, ...]
    """How the paths begin that anybody wants to hear of; the rest of the machine's units never reach the loop."""


class Bus:
    """A connection to the system bus and its thread. Use from one asyncio loop; `close` ends the thread."""

    def __init__(self, address: str = SYSTEM_BUS) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._context = GLib.MainContext()
        self._glib_loop = GLib.MainLoop(self._context)
        self._bus: Connection | None = None
        self._generation = 0
        """Counts connections: what an earlier one still reports is no news."""
        self._closed = asyncio.Event()
        self._closed.set()
        self._calls = asyncio.Semaphore(MAX_CALLS)
        self._thread_ended = asyncio.Event()
        # A daemon thread: a GLib call that never returns must not keep the program from ending.
        self._thread = threading.Thread(target=self._run_thread, name="glib", daemon=True)
        self._thread.start()

    async def connect(self, signals: Signals, *, timeout_s: float) -> None:
        """Make a connection, subscribe, and only then return.

        Raises: BackendLost when there is no bus, or no systemd on it, within the time.
        """
        await self._drop()
        self._closed.clear()
        self._generation += 1
        connected: asyncio.Future[Connection] = self._loop.create_future()
        self._in_thread(lambda: self._connect_in_thread(signals, timeout_s, connected))
        try:
            async with asyncio.timeout(timeout_s):
                self._bus = await connected
        except TimeoutError as error:
            raise BackendLost(f"the system bus did not answer within {timeout_s:g} s") from error

    async def wait_closed(self) -> None:
        """Return when the connection is gone."""
        await self._closed.wait()

    async def call(
        self, path: str, interface: str, method: str, signature: str, arguments: Sequence[object], *, timeout_s: float
    ) -> tuple[object, ...]:
        """Ask systemd. The timeout counts from when a place among the calls in flight is free.

        Raises: BackendLost (no connection, or no answer in time), BusCallFailed.
        """
        async with self._calls:
            bus = self._bus
            if bus is None or self._closed.is_set():
                raise BackendLost("there is no connection to the system bus", hint="systemctl status dbus")
            answer: asyncio.Future[tuple[object, ...]] = self._loop.create_future()

            def begin() -> None:
                bus.con.call(
                    SYSTEMD, path, interface, method, GLib.Variant(f"({signature})", tuple(arguments)), None,
                    Gio.DBusCallFlags.NONE, round(timeout_s * 1000), None,
                    lambda connection, result: self._finish_in_thread(connection, result, answer, method),
                )  # fmt: skip

            self._in_thread(begin)
            # Gio keeps the deadline; this one is for a GLib thread that is stuck itself.
            try:
                async with asyncio.timeout(timeout_s + 5.0):
                    return await answer
            except TimeoutError as error:
                raise BackendLost(f"systemd did not answer {method} within {timeout_s:g} s") from error

    async def close(self) -> None:
        """Close the connection and end the thread; a thread that is stuck in a call is left to the process's end."""
        await self._drop()
        self._in_thread(self._glib_loop.quit)
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._thread_ended.wait()
        except TimeoutError:
            return

    async def _drop(self) -> None:
        bus, self._bus = self._bus, None
        if bus is not None:
            self._in_thread(lambda: bus.con.close(None, None))
        self._closed.set()

    def _run_thread(self) -> None:
        self._context.push_thread_default()
        self._glib_loop.run()
        self._context.pop_thread_default()
        self._in_asyncio(self._thread_ended.set)

    def _in_thread(self, action: Callable[[], None]) -> None:
        """Run `action` in the GLib thread, soon (`invoke` might run it in *this* one; a source never does)."""

        def run_once(_data: object) -> bool:
            action()
            return False

        source = GLib.idle_source_new()
        source.set_priority(GLib.PRIORITY_DEFAULT)
        source.set_callback(run_once)
        source.attach(self._context)

    def _in_asyncio(self, action: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError:
            return  # the loop is closed: nobody is left to tell

    def _connect_in_thread(self, signals: Signals, timeout_s: float, connected: asyncio.Future[Connection]) -> None:
        try:
            bus = pydbus.connect(self._address)
            try:
                self._subscribe_in_thread(bus, signals, timeout_s)
            except (GLib.Error, KeyError):  # KeyError: what answered as systemd has no Manager
                bus.con.close(None, None)
                raise
        except (GLib.Error, KeyError) as error:
            failure = BackendLost(f"systemd cannot be reached over the system bus: {error}")
            self._in_asyncio(lambda: _fail(connected, failure))
            return
        self._in_asyncio(lambda: self._on_connected(connected, bus))

    def _subscribe_in_thread(self, bus: Connection, signals: Signals, timeout_s: float) -> None:
        bus.con.set_exit_on_close(False)
        mine = self._generation
        bus.con.connect("closed", lambda _connection, _by_peer, _error: self._in_asyncio(lambda: self._on_closed(mine)))
        manager = bus.get(SYSTEMD, timeout=timeout_s)[MANAGER]
        manager.JobRemoved.connect(
            lambda _id, job, unit, result: self._in_asyncio(lambda: signals.job_removed(job, unit, result))
        )

        told: set[str] = set()

        def tell(path: str) -> None:
            told.discard(path)
            signals.unit_changed(path)

        def on_properties_changed(
            _connection: Gio.DBusConnection, _sender: str, path: str, _iface: str, _signal: str, _values: GLib.Variant
        ) -> None:
            if path.startswith(signals.unit_paths) and path not in told:
                told.add(path)
                self._in_asyncio(lambda: tell(path))

        # One subscription for all units, by Gio because pydbus would unpack every property of every signal. The
        # filter matters: systemd sends a dozen signals per change of one unit.
        bus.con.signal_subscribe(
            SYSTEMD,
            PROPERTIES,
            "PropertiesChanged",
            None,
            "org.freedesktop.systemd1.Unit",
            Gio.DBusSignalFlags.NONE,
            on_properties_changed,
        )
        manager.Subscribe(timeout=timeout_s)

    def _on_connected(self, connected: asyncio.Future[Connection], bus: Connection) -> None:
        if connected.done():  # it came after its deadline
            self._in_thread(lambda: bus.con.close(None, None))
        else:
            connected.set_result(bus)

    def _on_closed(self, generation: int) -> None:
        if generation == self._generation:
            self._closed.set()

    def _finish_in_thread(
        self,
        connection: Gio.DBusConnection,
        result: Gio.AsyncResult,
        answer: "asyncio.Future[tuple[object, ...]]",
        method: str,
    ) -> None:
        try:
            reply = connection.call_finish(result).unpack()
        except GLib.Error as error:
            failure = _translate(error, method)
            self._in_asyncio(lambda: _fail(answer, failure))
            return
        self._in_asyncio(lambda: _settle(answer, reply))


def _settle(future: "asyncio.Future[T]", value: T) -> None:
    if not future.done():  # else whoever asked has gone
        future.set_result(value)


def _fail(future: "asyncio.Future[T]", error: LlmgwError) -> None:
    if not future.done():
        future.set_exception(error)


def _translate(error: GLib.Error, method: str) -> BackendLost | BusCallFailed:
    """A D-Bus error of the other side, or the loss of the connection."""
    if not Gio.DBusError.is_remote_error(error):
        return BackendLost(f"the system bus was lost during {method}: {error.message}")
    name = Gio.DBusError.get_remote_error(error)
    Gio.DBusError.strip_remote_error(error)
    if name.rpartition(".")[2] in _LOST:
        return BackendLost(f"systemd did not answer {method}: {error.message}")
    return BusCallFailed(f"systemd refused {method}: {error.message}", name)
