from collections.abc import Callable

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
