"""What a service gets to see: arguments, environment, identity, secrets."""

import asyncio
import grp
import json
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from tests.contract.lab import ACTOR, Lab
from units.model import CREDENTIALS, ServiceUnit

HOSTILE = (
    "", " ", "  a  b  ", "$", "$$", "$HOME", "${HOME}", "a${HOME}b", "$$$", "${", "%", "%%", "%n", "%H", "100%", "%d",
    '"', "'", '"a b"', "'a b'", "\\", "\\\\", "a\\", "\\n", "\\x41", "\\\"", "a'b\"c", ";", "a;b", "\\;", "#", "# a",
    "-", "@a", "+a", "!a", ":a", "|a", "=", "A=B", "[Service]", "*", "?", "~", "`id`", "$(id)", "&&", ">x", "é",
    "日本語", "\U0001f600", "\u00a0", "\u2028", "\ufeff", "a\u0301", "x" * 4096, "é" * 2048, "<|im_start|>",
    '{"a": ["b", 1]}', "--flag=\"a b\"",
)  # fmt: skip


@dataclass(slots=True)
class Dump:
    """What `dump` saw."""

    argv: list[str]
    env: dict[str, str]
    raw: dict[str, object]


async def _dump(lab: Lab, unit: ServiceUnit, path: Path) -> Dump:
    await lab.start(unit)
    raw = json.loads(await lab.until_text(path))
    argv = [bytes.fromhex(word).decode() for word in raw["argv"]]
    env = {bytes.fromhex(name).decode(): bytes.fromhex(value).decode() for name, value in raw["env"].items()}
    return Dump(argv, env, raw)


async def hostile_arguments_and_variables_arrive_byte_for_byte(lab: Lab) -> None:
    path = lab.file("dump")
    environment = tuple((f"HOSTILE_{number}", value) for number, value in enumerate(HOSTILE))
    unit = lab.act("dump", str(path), *HOSTILE, environment=environment)
    seen = await _dump(lab, unit, path)
    assert seen.argv == [ACTOR, "dump", str(path), *HOSTILE]
    assert {name: value for name, value in seen.env.items() if name.startswith("HOSTILE_")} == dict(environment)


async def one_hundred_thousand_bytes_of_arguments_arrive(lab: Lab) -> None:
    path = lab.file("dump")
    unit = lab.act("dump", str(path), "x" * 100_000)
    assert (await _dump(lab, unit, path)).argv[-1] == "x" * 100_000


async def nothing_of_the_managers_own_environment_leaks(lab: Lab) -> None:
    path = lab.file("dump")
    unit = lab.act("dump", str(path))
    seen = await _dump(lab, unit, path)
    leaked = {"LLMGW_STATE", "VIRTUAL_ENV", "SUDO_USER", "PYTEST_CURRENT_TEST", "LISTEN_FDS"} & set(seen.env)
    assert not leaked
    assert seen.env["PATH"]
    assert seen.env["INVOCATION_ID"] == (await lab.backend.read_status(unit.name)).invocation_id
    assert seen.raw["fds"] == [0, 1, 2]
    assert seen.raw["umask"] == 0o077
    assert seen.raw["cwd"] == "/"


async def an_environment_file_is_read_at_each_start(lab: Lab) -> None:
    source, path = lab.file("environment"), lab.file("dump")
    unit = lab.act("dump", str(path), environment_files=(str(source),), environment=(("B", "unit"), ("C", "unit")))
    source.write_text('# a comment\nA=one two\nB=\'quo "ted\'\n\n  E = "a b"  \n')
    seen = await _dump(lab, unit, path)
    assert (seen.env["A"], seen.env["B"], seen.env["C"], seen.env["E"]) == ("one two", 'quo "ted', "unit", "a b")
    source.write_text("A=three\n")
    path.unlink()
    await lab.backend.restart(unit.name)
    raw = json.loads(await lab.until_text(path))
    assert raw["env"][b"A".hex()] == b"three".hex()


async def credentials_arrive_for_the_service_alone(lab: Lab) -> None:
    source, path = lab.file("secret of %n"), lab.file("dump")
    source.write_bytes(b"s3cret\x00\xff\n")
    source.chmod(0o600)
    unit = lab.act(
        "dump", str(path), f"--key-file={CREDENTIALS}/key",
        credentials=(("key", str(source)),), environment=(("KEY_FILE", f"{CREDENTIALS}/key"),),
    )  # fmt: skip
    seen = await _dump(lab, unit, path)
    folder = seen.env["CREDENTIALS_DIRECTORY"]
    assert seen.argv[-1] == f"--key-file={folder}/key"
    assert seen.env["KEY_FILE"] == f"{folder}/key"
    assert seen.raw["credentials"] == {"key": [b"s3cret\x00\xff\n".hex(), 0o400, os.getuid()]}
    assert b"s3cret" not in Path(f"/proc/{seen.raw['pid']}/cmdline").read_bytes()
    await lab.backend.stop(unit.name)
    assert not Path(folder, "key").exists()


async def a_missing_credential_fails_the_start_with_243(lab: Lab) -> None:
    unit = lab.act("say", credentials=(("key", "/nonexistent/key"),))
    await lab.install(unit)
    await asyncio.gather(lab.backend.start(unit.name), return_exceptions=True)
    status = await lab.until(unit.name, lambda status: status.result == "exit-code", "refused")
    assert status.exec_main_status == 243


async def a_unit_runs_as_its_own_user_in_its_own_folder(lab: Lab) -> None:
    if os.getuid() != 0:
        return  # only root can run a service as somebody else
    path, source = lab.file("dump"), lab.file("key")
    source.write_text("k")
    source.chmod(0o600)
    unit = lab.act(
        "dump", str(path), user="daemon", group="daemon", supplementary_groups=("video", "audio"),
        working_directory="/usr", credentials=(("key", str(source)),),
    )  # fmt: skip
    seen = await _dump(lab, unit, path)
    account = pwd.getpwnam("daemon")
    assert (seen.raw["uid"], seen.raw["gid"], seen.raw["cwd"]) == (account.pw_uid, account.pw_gid, "/usr")
    assert (seen.env["USER"], seen.env["HOME"]) == ("daemon", account.pw_dir)
    groups = seen.raw["groups"]
    assert isinstance(groups, list)
    assert {_group("video"), _group("audio")} <= set(groups)
    assert 0 not in groups
    owned = seen.raw["credentials"]
    # systemd leaves the file to root and lets the user in by an access list, or gives it to the user.
    assert isinstance(owned, dict) and bytes.fromhex(owned["key"][0]) == b"k" and owned["key"][1] & 0o007 == 0


def _group(name: str) -> int:
    return grp.getgrnam(name).gr_gid
