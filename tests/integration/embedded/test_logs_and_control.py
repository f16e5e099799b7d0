"""Output is never lost and never blocks a service; the control socket takes anything and lets only its own in."""

import asyncio
import contextlib
import json
import os
import signal
import socket
from pathlib import Path

import pytest

from core.process import run_process
from tests.integration.embedded.house import House, house, recorded
from units.backend import ActiveState, UnitJobFailed
from units.embedded.logs import CAP_BYTES


def log_of(here: House, name: str) -> Path:
    return here.layout.logs / f"{name}.log"


async def test_a_flood_is_trimmed_and_its_last_lines_are_kept_without_a_gap() -> None:
    async with house() as here:
        path = here.pids_file()
        name = await here.install(here.misbehave(path, "--lines-mb", "80", "--exit", "0"))
        await here.backend.start(name)
        await here.until_status(name, lambda status: status.active_state is ActiveState.INACTIVE)
        log = log_of(here, name)
        await here.until(lambda: log.stat().st_blocks * 512 <= CAP_BYTES, "it is trimmed")
        assert log.stat().st_mode & 0o777 == 0o600
        lines = await here.backend.read_log(name, 100_000)
        numbers = [int(line.split()[0]) for line in lines]
        assert numbers == list(range(800_000 - len(numbers), 800_000))
        assert len(numbers) == 100_000


async def test_a_service_writes_on_while_the_supervisor_is_stopped_or_dead() -> None:
    async with house() as here:
        path = here.pids_file()
        name = await here.install(here.misbehave(path, "--lines-per-s", "200"))
        await here.backend.start(name)
        log = log_of(here, name)
        await here.until(lambda: log.stat().st_size > 1000, "it writes")
        assert here.process is not None
        here.process.send_signal(signal.SIGSTOP)
        size = log.stat().st_size
        await here.until(lambda: log.stat().st_size > size + 1000, "it writes on")
        await here.crash()
        size = log.stat().st_size
        await here.until(lambda: log.stat().st_size > size + 1000, "it still writes on")
        await here.open()
        size = log.stat().st_size
        await here.until(lambda: log.stat().st_size > size + 1000, "and on")
        lines = await here.backend.read_log(name, 100_000)
        assert [int(line.split()[1]) for line in lines] == list(range(len(lines)))


async def test_lives_do_not_run_together_in_the_log() -> None:
    async with house() as here:
        name = await here.install("/usr/bin/printf open")
        for _ in range(3):
            await here.backend.start(name)
            await here.until_status(name, lambda status: status.active_state is ActiveState.INACTIVE)
        assert await here.backend.read_log(name, 10) == ["open", "open", "open"]


GARBAGE = [
    b"\n",
    b"{}\n",
    b"null\n",
    b"\xff\xfe\n",
    b'{"id": "x", "op": "start"}\n',
    b'{"id": 1, "op": "explode"}\n',
    b'{"id": 1, "op": "kill", "unit": "llmgw-engine-x.service", "signal": 4711}\n',
    b'{"id": 1, "op": "start", "unit": "../../etc/passwd"}\n',
    b'{"id": 1, "op": "start", "unit": "a\\u0000b.service"}\n',
    b'{"id": 1, "op": "start", "unit": "' + b"x" * 5000 + b'.service"}\n',
    b'{"id": 1, "op": "start", "unit": "\\ud800.service"}\n',
    b"[" * 10_000 + b"\n",
]


async def test_garbage_is_answered_and_the_connection_lives_on() -> None:
    async with house() as here:
        reader, writer = await asyncio.open_unix_connection(here.layout.supervisor_state / "control.sock")
        for request in GARBAGE:
            writer.write(request)
            answer = json.loads(await reader.readline())
            assert "error" in answer, request[:60]
        writer.write(b'{"id": 5, "op": "ping", "later": [1, 2]}\n')
        assert json.loads(await reader.readline()) == {"id": 5}
        writer.write(b"x" * 300_000)
        with contextlib.suppress(ConnectionResetError):  # what it did not read is answered with a reset
            assert await reader.read() == b""
        writer.close()
        assert (await here.backend.read_status("llmgw-engine-none.service")).loaded is False


async def test_a_client_that_never_reads_does_not_hold_up_the_others() -> None:
    async with house() as here:
        name = await here.install("/bin/false", "Restart=always", "RestartSec=1ms", unit=("StartLimitIntervalSec=0",))
        deaf = socket.socket(socket.AF_UNIX)
        deaf.connect(str(here.layout.supervisor_state / "control.sock"))
        deaf.sendall(b'{"id": 1, "op": "subscribe"}\n')
        await here.backend.start(name)
        await here.until_status(name, lambda status: status.restarts > 50)
        deaf.close()
        await here.backend.stop(name)


async def test_a_job_goes_on_when_its_client_leaves() -> None:
    async with house() as here:
        path = here.pids_file()
        gate = "llmgw-gate-slow.service"
        engine = await here.install("/bin/sleep 1000")
        await here.write(
            gate, here.misbehave(path, "--term-takes-s", "0.5"), "TimeoutStopSec=20", unit=(f"BindsTo={engine}",)
        )
        await here.backend.start(gate)
        await here.until(lambda: recorded(path) != [], "it is up")
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(here.layout.supervisor_state / "control.sock"))
        client.sendall(json.dumps({"id": 1, "op": "stop", "unit": engine}).encode() + b"\n")
        await here.until_status(gate, lambda status: status.active_state is ActiveState.DEACTIVATING)
        client.close()
        await here.until_status(engine, lambda status: status.active_state is ActiveState.INACTIVE)


async def test_somebody_else_is_not_let_in() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: to become somebody else")
    async with house() as here:
        here.folder.chmod(0o755)
        path = here.layout.supervisor_state
        for folder in (path, path.parent):
            folder.chmod(0o755)
        (path / "control.sock").chmod(0o666)
        script = (
            "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
            's.sendall(b\'{"id":1,"op":"shutdown"}\\n\'); sys.exit(len(s.recv(100)))'
        )
        stranger = await asyncio.create_subprocess_exec(
            "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", script,
            str(path / "control.sock"), stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await stranger.wait()
        await here.until(lambda: "control_peer_refused" in here.said(), "it is told")
        assert here.backend.is_connected


async def test_a_full_disk_refuses_starts_in_words_and_harms_nothing_that_runs() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts a small file system")
    async with house() as here:
        await here.crash()
        await run_process(("mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(here.layout.runtime)), timeout_s=10)
        try:
            await here.open()
            running = await here.install("/bin/sleep 1000")
            late = await here.install("/bin/sleep 1000")
            await here.backend.start(running)
            ballast = here.layout.runtime / "ballast"
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while file.write(b"x" * 4096):
                    pass
            with pytest.raises(UnitJobFailed, match="No space left"):
                await here.backend.start(late)
            assert "unit_state_not_saved" in here.said()
            assert (await here.backend.read_status(running)).active_state is ActiveState.ACTIVE
            ballast.unlink()
            await here.backend.start(late)
            await here.backend.shutdown()
            assert here.process is not None
            await here.process.wait()
        finally:
            await run_process(("umount", "--lazy", str(here.layout.runtime)), timeout_s=10)
