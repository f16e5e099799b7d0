"""gunicorn's settings for the gateway: `gunicorn -c packaging/gunicorn.conf.py "gateway.app:create_app()"`.

From the environment: `LLMGW_BIND` (`host:port`, `unix:/path`, or `fd://N` for a socket that `llmgw up` holds, where
systemd passes none), `LLMGW_WORKERS`
(0 or nothing: one for each two processors, at most four), `LLMGW_DRAIN_S` (how long a stop waits for streams).
"""

import os
import socket
import sys
from typing import Protocol

from core.errors import ConflictError
from core.http.kept_tls import KEPT_TLS_VARIABLE, KeptTls
from core.http.worker import NOTIFY_VARIABLE, hold_stops_over_forks
from gateway.board import BOARD_VARIABLE, Board

# gunicorn takes LISTEN_PID out of the environment, and a reload reads this file again: without a mark of our own the
# new workers would not know of systemd's socket, and listen somewhere else.
if os.environ.get("LISTEN_PID") == str(os.getpid()):
    os.environ["LLMGW_ACTIVATED_PID"] = str(os.getpid())
_socket_activated = os.environ.get("LLMGW_ACTIVATED_PID") == str(os.getpid())


def _default_workers() -> int:
    return max(1, min(4, len(os.sched_getaffinity(0)) // 2))


bind = [os.environ.get("LLMGW_BIND") or "127.0.0.1:8100"]
workers = int(os.environ.get("LLMGW_WORKERS") or 0) or _default_workers()
worker_class = "core.http.worker.GatewayWorker"
# One queue of connections for all workers, and it outlives them: systemd's, `llmgw up`'s, or the arbiter's. With one
# for each worker (`reuse_port`) the kernel spreads connections more evenly, but it resets what comes while a worker
# closes its own, and what waits for a stuck or killed worker waits for it alone.
backlog = 4096
# A worker that has not reported for so long is stuck, and killed. It reports twice a second.
timeout = 30
# How long streams may go on after a stop or a reload. The unit's TimeoutStopSec is longer.
graceful_timeout = int(os.environ.get("LLMGW_DRAIN_S") or 120)
# The gateway writes one line for each request itself.
accesslog = None
errorlog = "-"
loglevel = "warning"
proc_name = "llmgw-gateway"
# The heartbeat is a file's time; on a disk that hangs it would kill healthy workers.
worker_tmp_dir = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
# A socket through which gunicorn could be told things; nobody here does.
control_socket_disable = True

# The arbiter says READY when it has a socket, before any worker serves. A worker says it instead; the unit has
# NotifyAccess=all for that. A reload reads this file again, when the variable has its other name already.
if "NOTIFY_SOCKET" in os.environ:
    os.environ[NOTIFY_VARIABLE] = os.environ.pop("NOTIFY_SOCKET")


class Worker(Protocol):
    """gunicorn's worker, in the arbiter and in its own process."""

    board_column: int


class Arbiter(Protocol):
    """gunicorn's arbiter; it keeps what workers share, because this file is read again at each reload."""

    board: Board
    kept_tls: KeptTls
    WORKERS: dict[int, Worker]


def on_starting(server: Arbiter) -> None:
    """Before anything else: is the port free, and what the workers will share."""
    if not _socket_activated and not bind[0].startswith(("unix:", "fd:")):
        _check_port()
    server.board = Board.create()
    server.kept_tls = KeptTls.create()
    hold_stops_over_forks()


def pre_fork(server: Arbiter, worker: Worker) -> None:
    """A column of the board for the worker to come; it is a dead worker's, or new."""
    worker.board_column = server.board.offer_column({other.board_column for other in server.WORKERS.values()})


def post_fork(server: Arbiter, worker: Worker) -> None:
    """In the worker: tell the application where it sits."""
    os.environ[BOARD_VARIABLE] = f"{server.board.fd},{worker.board_column}"
    os.environ[KEPT_TLS_VARIABLE] = str(server.kept_tls.fd)


def child_exit(server: Arbiter, worker: Worker) -> None:
    """The worker is dead; so are its requests, and the slots that they had are free."""
    if worker.board_column:
        server.board.clear_column(worker.board_column)


def _check_port() -> None:
    """gunicorn tries five times to bind a port that another process has, and then says so in its own words."""
    host, _, port = bind[0].rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError as error:
            words = f"cannot listen on {bind[0]}: {error.strerror}"
            refusal = ConflictError(words, hint="stop the other program, or choose another port", code="port_in_use")
            sys.stderr.write(refusal.render() + "\n")
            sys.exit(refusal.exit_code)
