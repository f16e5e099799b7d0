"""Nothing of a unit is left behind, however its processes hide: with a cgroup, and with the mark instead."""

import asyncio
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.integration.embedded.house import House, house, recorded
from units.backend import ActiveState
from units.embedded.cgroup import open_root

HIDING = [
    ("--child", "setsid"),
    ("--child", "double-fork"),
    ("--child", "clean-env"),
    ("--child", "plain"),
    ("--title", "--child", "setsid"),
    ("--ignore-term",),
    ("--child", "setsid", "--child", "double-fork", "--child", "clean-env"),
]

_LIBC_SIGNALS = 1 << 31 | 1 << 32
"""Signals 32 and 33 are the C library's own: no program may set them, and what a parent made of them stays."""


def can_make_cgroups(tmp_path: Path) -> bool:
    root = open_root(tmp_path, "llmgw-embedded-probe")
    if root is not None:
        root.rmdir()
    return root is not None


@pytest.fixture(params=["cgroup", "mark"])
def arguments(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    if request.param == "mark":
        return ("--no-cgroups",)
    if not can_make_cgroups(tmp_path):
        pytest.skip("needs a writable cgroup v2 tree: run as root on a machine that mounts one")
    return ()


async def test_a_stop_leaves_no_process_however_it_hides(arguments: tuple[str, ...]) -> None:
    async with house(*arguments) as here:
        await asyncio.gather(*(_start_and_stop(here, options) for options in HIDING))


async def _start_and_stop(here: House, options: tuple[str, ...]) -> None:
    path = here.pids_file()
    name = await here.install(here.misbehave(path, *options))
    await here.backend.start(name)
    wanted = 1 + options.count("--child")
    await here.until(lambda: len(recorded(path)) == wanted, f"all of {options} are up")
    await here.until_exactly(name, {pid for pid, _ in recorded(path)})
    await here.backend.stop(name)
    assert recorded(path) == [], f"left by {options}"


@pytest.mark.parametrize("status", [0, 3])
async def test_children_that_outlive_their_main_process_are_gone_before_the_restart(
    status: int, arguments: tuple[str, ...]
) -> None:
    async with house(*arguments) as here:
        path = here.pids_file()
        command = here.misbehave(path, "--child", "setsid", "--exit", str(status), "--after-s", "0.3")
        name = await here.install(command, "Restart=always")
        await here.backend.start(name)
        await here.until(lambda: len(recorded(path)) == 2, "both are up")
        first = {pid for pid, _ in recorded(path)}
        now: set[int] = set()

        def is_another_life() -> bool:
            now.clear()
            now.update(pid for pid, _ in recorded(path))
            return bool(now - first)

        await here.until(is_another_life, "a new one is up")
        assert first & now == set()


async def test_a_port_held_by_a_grandchild_is_free_again_when_the_unit_restarts() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with house() as here:
        path = here.pids_file()
        name = await here.install(here.misbehave(path, "--port", str(port)), "Restart=always")
        for _ in range(5):
            await here.backend.restart(name)
        status = await here.backend.read_status(name)
        assert (status.active_state, status.restarts) == (ActiveState.ACTIVE, 0)


async def test_a_stopped_service_is_woken_and_ends_at_once() -> None:
    async with house() as here:
        name = await here.install("/bin/sleep 1000", "TimeoutStopSec=60")
        await here.backend.start(name)
        await here.backend.kill(name, signal.SIGSTOP)
        began = time.monotonic()
        await here.backend.stop(name)
        assert time.monotonic() - began < 30
        assert (await here.backend.read_status(name)).active_state is ActiveState.INACTIVE


async def test_orphans_of_a_unit_do_not_stay_as_zombies() -> None:
    async with house() as here:
        name = await here.install("/bin/sh -c 'for i in 1 2 3 4 5; do (sleep 0.05 &) ; done; exec sleep 1000'")
        await here.backend.start(name)
        assert here.process is not None
        supervisor = here.process.pid

        def children() -> int:
            return len(Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split())

        await here.until(lambda: children() == 1, "only the main process is a child")


async def test_a_service_begins_with_no_signal_blocked_or_ignored_and_in_its_own_session() -> None:
    async with house() as here:
        name = await here.install("/bin/sleep 1000")
        await here.backend.start(name)
        pid = (await here.backend.read_status(name)).main_pid
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        masks = {int(line.split()[1], 16) for line in lines if line.startswith(("SigBlk", "SigIgn"))}
        assert {mask & ~_LIBC_SIGNALS for mask in masks} == {0}
        assert os.getsid(pid) == pid


async def test_a_service_of_another_user_reaches_its_socket_and_its_secret() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: only root can run a service as somebody else")
    async with house() as here:
        secret, seen = here.folder / "secret", here.folder / "seen"
        secret.write_text("s3cret")
        secret.chmod(0o600)
        here.folder.chmod(0o700)
        command = "/bin/sh -c 'echo \"$$(id -un) $$(cat %d/key)\"; exec sleep 1000'"
        name = await here.install(command, "User=nobody", f"LoadCredential=key:{secret}")
        await here.backend.start(name)
        log = here.backend.follow_log(name, 1)
        assert await anext(log) == "nobody s3cret"
        assert not seen.exists()
        folder = next(Path("/run").glob(f"llmgw-*/{name}.credentials"))
        assert (folder.stat().st_mode & 0o777, (folder / "key").stat().st_mode & 0o777) == (0o700, 0o400)
        await here.backend.stop(name)
        assert not folder.exists()


async def test_a_user_who_is_not_root_gets_a_supervisor_too() -> None:
    prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.geteuid() == 0 else ()
    async with house(prefix=prefix, owner=65534 if prefix else -1) as here:
        path = here.folder / "out"
        name = await here.install(f"/bin/sh -c '(setsid sleep 1000 &); id -u > {path}; exec sleep 1000'", "User=root")
        await here.backend.start(name)
        await here.until(lambda: path.exists() and path.read_text() != "", "it has written")
        assert path.read_text().strip() == str(65534 if prefix else os.getuid())
        assert "unit_user_not_applied" in here.said()
        await here.until_pids(name, 2)
        pids = await here.backend.read_pids(name)
        await here.backend.stop(name)
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


async def test_limits_are_clamped_to_what_may_be_given(arguments: tuple[str, ...]) -> None:
    async with house(*arguments) as here:
        out = here.folder / "out"
        name = await here.install(
            f"/bin/sh -c 'ulimit -n > {out}; exec sleep 1000'", "LimitNOFILE=99999999999", "LimitMEMLOCK=infinity"
        )
        await here.backend.start(name)
        await here.until(lambda: out.exists() and out.read_text() != "", "it has written")
        assert int(out.read_text()) > 0


async def test_a_memory_limit_that_cannot_be_set_is_said(arguments: tuple[str, ...]) -> None:
    async with house(*arguments) as here:
        name = await here.install("/bin/sleep 1000", "MemoryMax=1G")
        await here.backend.start(name)
        has_controller = any(Path("/sys/fs/cgroup").glob("**/llmgw-*/*/memory.max")) and not arguments
        assert has_controller or "memory_limit_not_set" in here.said()
