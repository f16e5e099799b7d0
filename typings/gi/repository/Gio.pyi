from collections.abc import Callable
from enum import IntFlag

from .GLib import Error, Variant, VariantType

class AsyncResult: ...
class Cancellable: ...

class DBusCallFlags(IntFlag):
    NONE = 0
    NO_AUTO_START = 1

class DBusSignalFlags(IntFlag):
    NONE = 0

class DBusError:
    @staticmethod
    def is_remote_error(error: Error) -> bool: ...
    @staticmethod
    def get_remote_error(error: Error) -> str: ...
    @staticmethod
    def strip_remote_error(error: Error) -> bool: ...

class DBusConnection:
    def set_exit_on_close(self, exit_on_close: bool) -> None: ...
    def is_closed(self) -> bool: ...
    def close(
        self, cancellable: Cancellable | None, callback: Callable[[DBusConnection, AsyncResult], None] | None
    ) -> None: ...
    def connect(self, signal: str, handler: Callable[[DBusConnection, bool, Error | None], None]) -> int: ...
    def call(
        self,
        bus_name: str,
        object_path: str,
        interface_name: str,
        method_name: str,
        parameters: Variant | None,
        reply_type: VariantType | None,
        flags: DBusCallFlags,
        timeout_msec: int,
        cancellable: Cancellable | None,
        callback: Callable[[DBusConnection, AsyncResult], None],
    ) -> None: ...
    def signal_subscribe(
        self,
        sender: str | None,
        interface_name: str | None,
        member: str | None,
        object_path: str | None,
        arg0: str | None,
        flags: DBusSignalFlags,
        callback: Callable[[DBusConnection, str, str, str, str, Variant], None],
    ) -> int: ...
    def call_finish(self, result: AsyncResult) -> Variant: ...
