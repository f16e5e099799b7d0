"""What must be settled before a program is started: folders, nobody else here, a config, a port that is ours."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from cli.adding import Place
from cli.first_config import first_config
from cli.machine import listen_on, read_machine
from cli.output import note
from core.config.load import ConfigMissing, Loaded
from core.config.write import Document
from core.errors import ConfigError, ConflictError, LlmgwError, PermissionError_
from core.files import ensure_directory, lock_file, storage_error
from core.paths import Layout

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8100


class PortBusy(ConflictError):
    """Another program listens there."""

    code = "port_busy"


class AlreadyUp(ConflictError):
    """Another `llmgw up` owns this state directory."""

    code = "already_up"


def make_folders(root: Path, layout: Layout) -> None:
    """Make the state directory and what the programs expect in it. Folders that exist keep their mode."""
    for folder in (root, layout.state, layout.runtime, layout.units, layout.logs):
        if not folder.is_dir():
            ensure_directory(folder)
    if not os.access(root, os.W_OK | os.X_OK):
        raise PermissionError_(f"you may not write in {root}", hint="choose another directory with --state")


@contextlib.contextmanager
def alone(root: Path, layout: Layout) -> Iterator[None]:
    """Hold this state directory while the block runs. Raises: AlreadyUp."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock_file(layout.runtime / "up.lock"))
        except ConflictError:
            raise AlreadyUp(
                f"another llmgw up runs with the state directory {root}",
                hint=f"llmgw status --state {root}; stop it with Ctrl-C where it runs, or choose another --state",
            ) from None
        yield


def load_or_write_config(place: Place, port: int | None) -> Loaded:
    """The config that is there, or a first one. A port that was asked for is written into it."""
    try:
        loaded = place.load()
    except ConfigMissing:
        return _write_first(place, port or DEFAULT_PORT)
    if port is None or port == loaded.config.server.port:
        return loaded
    note(f"{place.layout.config}: server.port is now {port} (was {loaded.config.server.port})")
    return place.edit(lambda document: _set_port(document, port))


def _write_first(place: Place, port: int) -> Loaded:
    machine = read_machine(DEFAULT_HOST, port)

    def change(document: Document) -> None:
        first_config(document, machine, host=DEFAULT_HOST, port=port)

    note(f"writing a first config, {place.layout.config}")
    return place.edit(change)


def _set_port(document: Document, port: int) -> None:
    if not isinstance(document.get("server"), dict):
        document["server"] = {}
    server = document["server"]
    if isinstance(server, dict):
        server["port"] = port


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """The gateway's socket, ours as long as the block runs. Raises: PortBusy, PermissionError_, ConfigError."""
    try:
        listener = listen_on(host, port)
    except socket.gaierror as error:
        raise ConfigError(f"server.host {host}: {error.strerror}", code="bad_host") from error
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    with listener:
        listener.set_inheritable(True)
        yield listener


def _cannot_listen(host: str, port: int, error: OSError) -> LlmgwError:
    where = f"port {port} on {host}"
    if error.errno == errno.EADDRINUSE:
        return PortBusy(f"{where} is in use by another program", hint="choose another with --port")
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionError_(f"you may not listen on {where}", hint="choose a port above 1023 with --port")
    return ConfigError(f"nobody can listen on {where}: {error.strerror}", hint="set server.host", code="bad_host")


def as_storage_error(root: Path, error: OSError) -> LlmgwError:
    """An error of the file system that no nearer place has translated (a disk that is full, mostly)."""
    return storage_error(Path(error.filename) if isinstance(error.filename, str) else root, error)
