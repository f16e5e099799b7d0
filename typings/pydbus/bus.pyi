from collections.abc import Callable, Mapping

from gi.repository.Gio import DBusConnection

class Subscription:
    def unsubscribe(self) -> None: ...

class Signal:
    def connect(self, callback: Callable[..., None]) -> Subscription: ...

class Method:
    def __call__(self, *arguments: object, timeout: float = ...) -> object: ...

class Interface:
    """One interface of a remote object; what it offers is known at run time only. We name what we use."""

    Subscribe: Method
    JobRemoved: Signal

class ProxyObject:
    def __getitem__(self, interface: str) -> Interface: ...

class Bus:
    con: DBusConnection
    def get(self, bus_name: str, object_path: str | None = None, *, timeout: float = ...) -> ProxyObject: ...
    def subscribe(
        self,
        sender: str | None = None,
        iface: str | None = None,
        signal: str | None = None,
        object: str | None = None,
        arg0: str | None = None,
        flags: int = 0,
        signal_fired: Callable[[str, str, str, str, tuple[object, ...]], None] | None = None,
    ) -> Subscription: ...

def connect(address: str) -> Bus: ...
