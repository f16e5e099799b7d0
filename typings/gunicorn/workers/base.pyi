# Of gunicorn 27, what core/http/worker.py uses.
import signal
import socket
from types import FrameType

from core.http.asgi import AsgiApp

class _Settings:
    backlog: int
    graceful_timeout: int

class _Logger:
    def error(self, message: str, *args: object, exc_info: BaseException | None = None) -> None: ...
    def warning(self, message: str, *args: object) -> None: ...
    def reopen_files(self) -> None: ...

class _Listener:
    sock: socket.socket

class Worker:
    SIGNALS: list[signal.Signals]
    alive: bool
    cfg: _Settings
    log: _Logger
    ppid: int
    sockets: list[_Listener]
    wsgi: AsgiApp

    def notify(self) -> None: ...
    def init_process(self) -> None: ...
    def init_signals(self) -> None: ...
    def handle_abort(self, number: int, frame: FrameType | None) -> None: ...
    def run(self) -> None: ...
