"""What only systemd does: the sandbox, and the bus that can go and come back."""

import asyncio
import json
import os
import signal
from pathlib import Path

from core.files import StorageError
from core.process import run_process
from tests.contract.lab import PATIENCE_S, ROOT, Lab, close, next_of
from units.backend import ActiveState, BackendLost, UnitFileChange
from units.model import Sandbox
from units.systemd.files import read_unit_files, write_unit_files
from units.words import quote_word, split_words

PROBE = """
import json, os, sys
def can(action):
    try:
        action()
        return "yes"
    except OSError as error:
        return error.strerror
out = sys.argv[1]
seen = {
    "write etc": can(lambda: open("/etc/llmgw-probe", "w")),
    "write granted": can(lambda: open(sys.argv[2] + "/new", "w")),
    "write readable": can(lambda: open(sys.argv[3] + "/new", "w")),
    "read readable": open(sys.argv[3] + "/weights").read(),
    "list home": can(lambda: os.listdir("/home")),
    "chroot": can(lambda: os.chroot("/")),
    "uid": os.getuid(),
}
with open(out, "w") as file:
    json.dump(seen, file)
"""


async def a_sandboxed_service_reaches_what_it_was_granted_and_nothing_else(lab: Lab) -> None:
    for place in ("/srv/a b%n", "/home/some one/a:b", "/tmp/lab probe"):
        granted, readable = Path(place, "granted"), Path(place, "readable")
        for folder in (granted, readable):
            folder.mkdir(parents=True, exist_ok=True)
        granted.chmod(0o777)
        (readable / "weights").write_text("weights\n")
        seen = await _probe(lab, granted, readable)
        assert seen["write etc"] == "Read-only file system", seen
        assert seen["write granted"] == "yes", seen
        assert seen["write readable"] in ("Permission denied", "Read-only file system"), seen
        assert seen["read readable"] == "weights\n", seen
        assert seen["chroot"] == "Operation not permitted", seen
        assert seen["uid"] == 1, seen
        assert seen["list home"] == ("yes" if place.startswith("/home") else "Permission denied"), seen


async def _probe(lab: Lab, granted: Path, readable: Path) -> dict[str, object]:
    out = granted / "seen"
    out.unlink(missing_ok=True)
    program = lab.file("probe.py")
    program.write_text(PROBE)
    sandbox = Sandbox(read_write_paths=(str(granted),), read_only_paths=(str(readable), str(program), ROOT))
    command = ("/usr/bin/python3", str(program), str(out), str(granted), str(readable))
    unit = lab.unit(command, user="daemon", sandbox=sandbox)
    await lab.install(unit)
    await lab.backend.start(unit.name)
    ended = await lab.until(unit.name, lambda status: status.sub_state in ("dead", "failed"))
    assert ended.result == "success", await lab.backend.read_log(unit.name, 20)
    found: dict[str, object] = json.loads(out.read_text())
    return found


async def only_granted_devices_can_be_opened(lab: Lab) -> None:
    for number, name in ((3, "lab-null"), (5, "lab-zero")):
        path = Path(f"/dev/{name}")
        if not path.exists():
            os.mknod(path, 0o020666, os.makedev(1, number))
            path.chmod(0o666)
    script = "for d in lab-null lab-zero null; do (: </dev/$d) && echo $d; done 2>/dev/null; exit 1"
    granted = lab.unit(("/bin/sh", "-c", script), user="daemon", sandbox=Sandbox(device_allow=("/dev/lab-zero",)))
    await lab.start(granted)
    await lab.until_state(granted.name, ActiveState.FAILED)
    await lab.until_line(granted.name, "lab-zero")
    # /dev/null is always there; lab-null is the same device (1:3), so it is allowed by its number, not by its name.
    found = await lab.backend.read_log(granted.name, 10)
    assert found == ["lab-null", "lab-zero", "null"], found
    hidden = lab.unit(("/bin/sh", "-c", script), user="daemon", sandbox=Sandbox())
    await lab.start(hidden)
    await lab.until_state(hidden.name, ActiveState.FAILED)
    await lab.until_line(hidden.name, "null")
    found = await lab.backend.read_log(hidden.name, 10)
    assert found == ["null"], found


async def the_bus_may_go_and_come_back(lab: Lab) -> None:
    for how in (("systemctl", "restart", "dbus"), ("systemctl", "kill", "--signal=KILL", "dbus")):
        unit = lab.act("say")
        before = await lab.start(unit)
        changes = lab.backend.changes()
        try:
            await run_process(how, timeout_s=20, check=False)
            async with asyncio.timeout(PATIENCE_S):
                while (await next_of(changes, unit.name)).main_pid != before.main_pid:
                    pass
        finally:
            await close(changes)
        await _until_answered(lab, unit.name)
        assert (await lab.backend.read_status(unit.name)).main_pid == before.main_pid
        await lab.backend.kill(unit.name, signal.SIGKILL)
        await lab.until_state(unit.name, ActiveState.FAILED)


async def a_job_that_loses_its_bus_says_so(lab: Lab) -> None:
    unit = lab.act("deaf", timeout_stop_s=3.0)
    await lab.start(unit)
    await lab.until(unit.name, lambda status: status.main_pid > 0)
    stopping = asyncio.create_task(lab.backend.stop(unit.name))
    await lab.until(unit.name, lambda status: status.sub_state in ("stop-sigterm", "dead", "failed"))
    await run_process(("systemctl", "restart", "dbus"), timeout_s=20, check=False)
    async with asyncio.timeout(PATIENCE_S):
        ended = await asyncio.gather(stopping, return_exceptions=True)
    assert ended[0] is None or isinstance(ended[0], BackendLost)
    await _until_answered(lab, unit.name)


async def a_full_disk_leaves_the_old_file_and_says_so(lab: Lab) -> None:
    place = lab.file("small")
    place.mkdir()
    await run_process(("mount", "-t", "tmpfs", "-o", "size=64k", "small", str(place)), timeout_s=10)
    try:
        name = lab.act("say").name
        write_unit_files(place, [UnitFileChange(name, "old")])
        try:
            write_unit_files(place, [UnitFileChange(name, "new" * 100_000)])
        except StorageError as error:
            assert error.code == "disk_full"
            assert name in error.message
        else:
            raise AssertionError("it was written")
        assert read_unit_files(place) == {name: "old"}
        assert [entry.name for entry in place.iterdir()] == [name]
    finally:
        await run_process(("umount", str(place)), timeout_s=10)


async def a_log_is_followed_over_a_restart_of_the_journal(lab: Lab) -> None:
    for how in (("systemctl", "restart", "systemd-journald"), ("systemctl", "kill", "-sKILL", "systemd-journald")):
        unit = lab.act("say", "hello")
        await lab.start(unit)
        await lab.until_line(unit.name, "hello")
        log = lab.backend.follow_log(unit.name, 1)
        try:
            async with asyncio.timeout(PATIENCE_S):
                assert await anext(log) == "hello"
                await run_process(how, timeout_s=20)
                await lab.backend.restart(unit.name)
                assert await anext(log) == "hello"
        finally:
            await close(log)


async def systemd_may_re_execute_itself(lab: Lab) -> None:
    unit = lab.act("say")
    before = await lab.start(unit)
    await run_process(("systemctl", "daemon-reexec"), timeout_s=30)
    await _until_answered(lab, unit.name)
    assert (await lab.backend.read_status(unit.name)).main_pid == before.main_pid
    await lab.backend.kill(unit.name, signal.SIGKILL)
    await lab.until_state(unit.name, ActiveState.FAILED)


async def _until_answered(lab: Lab, name: str) -> None:
    """Until the back end has its connection again."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await lab.backend.wait_ready()
            try:
                await lab.backend.read_status(name)
            except BackendLost:
                await asyncio.sleep(0.05)
                continue
            return


async def systemd_reads_words_as_we_do(lab: Lab) -> None:
    """`split_words` against the reference: the same line, split by systemd."""
    lines = [
        r'a"b c"d', r"'a \"b'", r"\x41\101\u0042\U00000043\s\t\\", "$LAB ${LAB} a$LAB a${LAB}b", "$$LAB $${LAB} $$",
        "$NOTHING ${NOTHING} end", r'\; ";" a;b', "%% 100%%", '""', r"\xc3\xa9",
        quote_word("\u2028 é 'x' \"y\" $LAB %n"),
    ]  # fmt: skip
    environment = {"LAB": "one 'two three'"}
    for line in lines:
        path = lab.file("dump")
        unit = lab.act("dump", str(path), "PLACE", environment=tuple(environment.items()))
        await lab.install(unit)
        await _replace_word(lab, unit.name, line)
        await lab.backend.start(unit.name)
        raw = json.loads(await lab.until_text(path))
        found = [bytes.fromhex(word).decode() for word in raw["argv"][3:]]
        assert found == split_words(line, environment), (line, found)


async def _replace_word(lab: Lab, name: str, line: str) -> None:
    """Write the line as it is where `PLACE` stands: what no renderer of ours would write."""
    text = (await lab.backend.read_files())[name]
    await lab.backend.apply_files([UnitFileChange(name, text.replace(" PLACE\n", f" {line}\n"))])


async def noncharacters_are_refused_because_systemd_drops_their_line(lab: Lab) -> None:
    path = lab.file("dump")
    unit = lab.act("dump", str(path), "PLACE")
    await lab.install(unit)
    await _replace_word(lab, unit.name, "\ufdd0")
    assert not (await lab.backend.read_status(unit.name)).loaded


SYSTEMD_ONLY = {
    scenario.__name__: scenario
    for scenario in (
        a_sandboxed_service_reaches_what_it_was_granted_and_nothing_else,
        only_granted_devices_can_be_opened,
        the_bus_may_go_and_come_back,
        a_job_that_loses_its_bus_says_so,
        a_full_disk_leaves_the_old_file_and_says_so,
        a_log_is_followed_over_a_restart_of_the_journal,
        systemd_may_re_execute_itself,
        systemd_reads_words_as_we_do,
        noncharacters_are_refused_because_systemd_drops_their_line,
    )
}
