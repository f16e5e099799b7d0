"""The gunicorn worker, as a real arbiter with real signals."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.http.harness import RawClient, connected

_ROOT = Path(__file__).resolve().parents[3]
_SETTINGS = _ROOT / "packaging/gunicorn.conf.py"
_DEADLINE_S = 90.0
_HELD_AFTER_FORK = f"""
import pathlib, time
exec(compile(pathlib.Path({str(_SETTINGS)!r}).read_text(), {str(_SETTINGS)!r}, "exec"))
let_go = pathlib.Path(__file__).with_name("go")
take_seat = post_fork
def post_fork(server, worker):
    take_seat(server, worker)
    while not let_go.exists():
        time.sleep(0.01)
"""
"""The shipped settings, and a worker that stays where it is right after the fork until somebody says go."""


class Gunicorn:
    """An arbiter with the settings that are shipped."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, folder: Path, notified: socket.socket) -> None:
        self.process = process
        self.port = port
        self.folder = folder
        self._notified = notified

    async def notification(self) -> str:
        loop = asyncio.get_running_loop()
        return (await loop.sock_recv(self._notified, 4096)).decode()

    def has_notified(self) -> bool:
        try:
            return bool(self._notified.recv(4096, socket.MSG_PEEK))
        except BlockingIOError:
            return False

    async def get(self, path: str) -> str:
        async with connected(self.port) as client:
            await client.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            return (await client.answer()).body.decode()

    def workers(self) -> list[int]:
        return [
            int(word) for word in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ]

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def log(self) -> str:
        return (self.folder / "log").read_text()


@asynccontextmanager
async def running(
    folder: Path, *, ready: bool = True, settings: Path = _SETTINGS, **environ: str
) -> AsyncIterator[Gunicorn]:
    """Start gunicorn on a port of its own; with `ready` wait until it says that it serves."""
    with socket.socket() as found, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
        found.close()
        notified.bind(str(folder / "notify"))
        notified.setblocking(False)
        env = dict(
            os.environ, LLMGW_BIND=f"127.0.0.1:{port}", LLMGW_WORKERS="1", TEST_FOLDER=str(folder),
            NOTIFY_SOCKET=str(folder / "notify"), PYTHONPATH=str(_ROOT),
        )  # fmt: skip
        argv = ("-m", "gunicorn", "-c", str(settings))
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *argv, "tests.integration.http.application:create_app()",
                env=env | environ, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        gunicorn = Gunicorn(process, port, folder, notified)
        try:
            async with asyncio.timeout(_DEADLINE_S):
                if ready:
                    assert await gunicorn.notification() == "READY=1\nSTATUS=serving"
                yield gunicorn
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


async def _until(is_so: Callable[[], bool]) -> None:
    """Poll what tells nobody when it changes; the caller has a deadline."""
    while not is_so():  # noqa: ASYNC110 - another process's state
        await asyncio.sleep(0.01)


async def _reload(gunicorn: Gunicorn) -> None:
    """Until the last of the old workers is gone."""
    old = set(gunicorn.workers())
    gunicorn.send_signal(signal.SIGHUP)
    await _until(lambda: not old & set(gunicorn.workers()))


@asynccontextmanager
async def _streaming(gunicorn: Gunicorn) -> AsyncIterator[RawClient]:
    async with connected(gunicorn.port) as client:
        await client.send(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        await client.reader.readuntil(b"begun\r\n")
        yield client


async def test_nobody_is_told_ready_and_no_request_is_answered_before_the_startup_is_through(tmp_path: Path) -> None:
    async with running(tmp_path, ready=False, TEST_STARTUP="waits") as gunicorn:
        await _until(lambda: any(tmp_path.glob("starting-*")))
        asking = asyncio.ensure_future(gunicorn.get("/"))
        await asyncio.sleep(0.2)
        assert not asking.done()
        assert not gunicorn.has_notified()
        (tmp_path / "gate").touch()
        assert await gunicorn.notification() == "READY=1\nSTATUS=serving"
        assert int(await asking) in gunicorn.workers()


async def test_a_worker_whose_startup_fails_is_tried_again(tmp_path: Path) -> None:
    async with running(tmp_path, ready=False, TEST_STARTUP="fails") as gunicorn:
        await _until(lambda: len(list(tmp_path.glob("starting-*"))) == 2)
        (tmp_path / "gate").touch()
        assert await gunicorn.notification() == "READY=1\nSTATUS=serving"
        assert "error: no route table  [application_startup_failed]" in gunicorn.log()


async def test_a_stop_waits_for_streams_and_runs_the_shutdown(tmp_path: Path) -> None:
    async with running(tmp_path) as gunicorn, _streaming(gunicorn) as client:
        worker = gunicorn.workers()[0]
        gunicorn.send_signal(signal.SIGTERM)
        await _until(lambda: not _listens(gunicorn.port))
        assert gunicorn.process.returncode is None
        client.writer.close()
        assert await gunicorn.process.wait() == 0
        assert (tmp_path / f"shutdown-{worker}").exists()


async def test_a_stop_does_not_wait_longer_than_it_was_told(tmp_path: Path) -> None:
    async with running(tmp_path, LLMGW_DRAIN_S="1") as gunicorn, _streaming(gunicorn) as client:
        gunicorn.send_signal(signal.SIGTERM)
        assert await client.is_closed()
        assert await gunicorn.process.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
async def test_an_interrupt_ends_at_once(tmp_path: Path, number: signal.Signals) -> None:
    async with running(tmp_path) as gunicorn, _streaming(gunicorn) as client:
        gunicorn.send_signal(number)
        assert await client.is_closed()
        await gunicorn.process.wait()


async def test_an_interrupt_during_a_stop_ends_it(tmp_path: Path) -> None:
    async with running(tmp_path) as gunicorn, _streaming(gunicorn) as client:
        gunicorn.send_signal(signal.SIGTERM)
        await _until(lambda: not _listens(gunicorn.port))
        gunicorn.send_signal(signal.SIGINT)
        assert await client.is_closed()
        await gunicorn.process.wait()


async def test_a_stop_that_meets_a_worker_right_after_its_fork_is_heard(tmp_path: Path) -> None:
    settings = tmp_path / "settings.py"
    settings.write_text(_HELD_AFTER_FORK)
    async with running(tmp_path, ready=False, settings=settings) as gunicorn:
        await _until(lambda: bool(gunicorn.workers()))
        (worker,) = gunicorn.workers()
        gunicorn.send_signal(signal.SIGTERM)
        await _until(lambda: _is_pending(worker, signal.SIGTERM))
        (tmp_path / "go").touch()
        await gunicorn.process.wait()


def _is_pending(pid: int, number: signal.Signals) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in pending)


async def test_a_reload_loses_no_stream_and_serves_by_new_workers(tmp_path: Path) -> None:
    async with running(tmp_path) as gunicorn, _streaming(gunicorn) as client:
        old = gunicorn.workers()[0]
        gunicorn.send_signal(signal.SIGHUP)
        assert await gunicorn.notification() == "READY=1\nSTATUS=serving"
        await _until(lambda: old not in gunicorn.workers() or len(gunicorn.workers()) == 2)
        while int(await gunicorn.get("/")) == old:  # noqa: ASYNC110 - until the old one has closed its listener
            await asyncio.sleep(0.01)
        assert not client.reader.at_eof()
        assert old in gunicorn.workers()
        client.writer.close()
        await _until(lambda: old not in gunicorn.workers())


async def test_reloads_lose_no_new_connection(tmp_path: Path) -> None:
    """Their queue must be no worker's own: what comes while a worker closes it would be reset."""
    async with running(tmp_path, LLMGW_WORKERS="2") as gunicorn:
        assert await gunicorn.notification() == "READY=1\nSTATUS=serving"
        reloaded = asyncio.Event()

        async def keep_coming() -> None:
            while not reloaded.is_set():
                assert (await gunicorn.get("/")).isdigit()

        async with asyncio.TaskGroup() as clients:
            for _ in range(8):
                clients.create_task(keep_coming())
            for _ in range(3):
                await _reload(gunicorn)
            reloaded.set()


async def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    async with running(tmp_path) as gunicorn:
        old = int(await gunicorn.get("/"))
        os.kill(old, signal.SIGKILL)
        assert await gunicorn.notification() == "READY=1\nSTATUS=serving"
        assert int(await gunicorn.get("/")) != old


async def test_workers_end_when_their_arbiter_is_killed(tmp_path: Path) -> None:
    async with running(tmp_path) as gunicorn:
        worker = gunicorn.workers()[0]
        gunicorn.send_signal(signal.SIGKILL)
        await _until(lambda: not Path(f"/proc/{worker}/exe").exists())


async def test_an_application_s_error_is_logged_and_the_connection_closed_uncleanly(tmp_path: Path) -> None:
    async with running(tmp_path) as gunicorn, connected(gunicorn.port) as client:
        await client.send(b"GET /crash HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await client.answer()).status == 500
        assert "as it was told" in gunicorn.log()


async def test_connections_do_not_wait_for_a_worker_that_hangs_while_another_is_free(tmp_path: Path) -> None:
    async with running(tmp_path, LLMGW_WORKERS="2") as gunicorn:
        assert await gunicorn.notification() == "READY=1\nSTATUS=serving"
        for hung in gunicorn.workers():
            await _hang(hung)
            answers = {int(await gunicorn.get("/")) for _ in range(50)}
            os.kill(hung, signal.SIGCONT)
            assert answers == set(gunicorn.workers()) - {hung}


async def test_a_busy_port_ends_in_one_clear_message(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        bind = f"127.0.0.1:{busy.getsockname()[1]}"
        async with running(tmp_path, ready=False, LLMGW_BIND=bind, LLMGW_WORKERS="2") as gunicorn:
            assert await gunicorn.process.wait() == 5
            assert f"error: cannot listen on {bind}: Address already in use  [port_in_use]" in gunicorn.log()


async def test_a_socket_of_systemd_s_is_taken_with_its_waiting_connections(tmp_path: Path) -> None:
    activate = "import os, sys; os.environ['LISTEN_PID'] = str(os.getpid()); os.execv(sys.argv[1], sys.argv[1:])"
    with socket.socket() as listener, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        notified.bind(str(tmp_path / "notify"))
        notified.setblocking(False)
        port = int(listener.getsockname()[1])
        env = dict(
            os.environ, LISTEN_FDS="1", LLMGW_WORKERS="2", LLMGW_BIND="127.0.0.1:1", TEST_FOLDER=str(tmp_path),
            NOTIFY_SOCKET=str(tmp_path / "notify"), PYTHONPATH=str(_ROOT),
        )  # fmt: skip
        argv = ("-m", "gunicorn", "-c", str(_SETTINGS))
        async with connected(port) as early, asyncio.timeout(_DEADLINE_S):
            await early.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            with (tmp_path / "log").open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", f"import os; os.dup2({listener.fileno()}, 3); " + activate, sys.executable,
                    *argv, "tests.integration.http.application:create_app()", env=env, stdout=log, stderr=log,
                    pass_fds=(listener.fileno(), 3) if listener.fileno() != 3 else (3,), start_new_session=True,
                )  # fmt: skip
            gunicorn = Gunicorn(process, port, tmp_path, notified)
            try:
                assert (await early.answer()).status == 200
                gunicorn.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
                # It is systemd's: it stays open for the next start.
                assert _listens(port)
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()


async def _hang(pid: int) -> None:
    """Stop it, and wait until it has stopped: T in its fields (proc_pid_stat(5)) after its name."""
    os.kill(pid, signal.SIGSTOP)
    stat = Path(f"/proc/{pid}/stat")
    await _until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")


def _listens(port: int) -> bool:
    wanted = f"0100007F:{port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(fields[1] == wanted and fields[3] == "0A" for fields in map(str.split, lines))
