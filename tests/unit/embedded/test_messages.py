"""Text from outside: environment files, notifications, the kernel's tables."""

from pathlib import Path

import pytest

from units.embedded.cgroup import find_own_cgroup
from units.embedded.environment import EnvironmentFileMissing, build_environment, parse_environment_file
from units.embedded.identity import Identity
from units.embedded.notify import parse_notification
from units.embedded.parse import EmbeddedUnit

MOUNTS = ["24 1 0:22 / /proc rw - proc proc rw", "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"]


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ("A=1\nB=two words\n", {"A": "1", "B": "two words"}),
        ("# c\n; c\n\n A = 1 \n", {"A": "1"}),
        ('A="a b" \nB=\'a "b\'\n', {"A": "a b", "B": 'a "b'}),
        ("A=a\\\nb\nC=d", {"A": "ab", "C": "d"}),
        ("A='one\ntwo'\nB=3", {"A": "one\ntwo", "B": "3"}),
        ('A="a\\"b\\$c\\n"', {"A": 'a"b$c\\n'}),
        ("A=$HOME", {"A": "$HOME"}),
        ("A=\nB", {"A": ""}),
        ("# it's a comment\nA=1", {"A": "1"}),
        ("A=1\nA=2", {"A": "2"}),
        ("A=\u2028x", {"A": "\u2028x"}),
    ],
)
def test_environment_files_are_read_as_systemd_does(text: str, env: dict[str, str]) -> None:
    assert parse_environment_file(text) == env


def test_an_environment_is_made_from_scratch_and_files_win(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("A=file\n")
    unit = EmbeddedUnit(
        "a.service", "/x", environment=("A=unit B=%d/key 'C=a b'",), environment_files=(str(file), "-/nonexistent")
    )
    identity = Identity(1, 1, (), "joe", "/home/joe", "/bin/sh")
    env = build_environment(unit, identity, {"CREDENTIALS_DIRECTORY": "/creds"})
    assert (env["A"], env["B"], env["C"]) == ("file", "/creds/key", "a b")
    assert (env["USER"], env["HOME"]) == ("joe", "/home/joe")
    assert "VIRTUAL_ENV" not in env


def test_an_environment_file_that_is_missing_is_named() -> None:
    unit = EmbeddedUnit("a.service", "/x", environment_files=("/nonexistent",))
    with pytest.raises(EnvironmentFileMissing, match="/nonexistent"):
        build_environment(unit, None, {})


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        (b"READY=1\nSTATUS=a=b", {"READY": "1", "STATUS": "a=b"}),
        (b"", {}),
        (b"garbage\n=x\n\xff=1", {"": "x", "\ufffd": "1"}),
    ],
)
def test_notifications_are_lines_of_names_and_values(data: bytes, fields: dict[str, str]) -> None:
    assert parse_notification(data) == fields


@pytest.mark.parametrize(
    ("mounts", "groups", "folder"),
    [
        (MOUNTS, ["0::/user.slice/a.scope"], "/sys/fs/cgroup/user.slice/a.scope"),
        (MOUNTS, ["1:name=systemd:/x", "0::/"], "/sys/fs/cgroup"),
        (["30 24 0:26 /docker/x /sys/fs/cgroup rw - cgroup2 c rw"], ["0::/docker/x/y"], "/sys/fs/cgroup/y"),
        (["30 24 0:26 /docker/x /sys/fs/cgroup rw - cgroup2 c rw"], ["0::/docker/x"], "/sys/fs/cgroup"),
        (MOUNTS, ["0::/../outside"], None),
        (MOUNTS, ["1:cpu:/x"], None),
        (["30 24 0:26 / /sys/fs/cgroup rw - cgroup cgroup rw,cpu"], ["0::/"], None),
        ([], [], None),
    ],
)
def test_our_own_cgroup_is_found_in_whatever_is_mounted(
    mounts: list[str], groups: list[str], folder: str | None
) -> None:
    assert find_own_cgroup(mounts, groups) == (None if folder is None else Path(folder))
