"""Rendered unit files: no value adds a directive, and what cannot be written is refused by its directive's name."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.units.samples import GPU, PLAIN
from units.model import Sandbox, ServiceUnit, UnitRecord
from units.render import render_unit
from units.words import WordRefused, split_words


def directives(text: str, key: str) -> list[str]:
    return [line.partition("=")[2] for line in text.split("\n") if line.startswith(f"{key}=")]


@given(st.text(), st.text(), st.text())
def test_no_value_adds_a_directive(argument: str, value: str, path: str) -> None:
    unit = replace(
        PLAIN,
        exec_start=("/bin/sleep", argument),
        environment=(("A", value),),
        sandbox=Sandbox(read_only_paths=(f"/{path}",)),
        working_directory=f"/{path}",
    )
    try:
        text = render_unit(unit)
    except WordRefused:
        return
    plain = render_unit(
        replace(unit, exec_start=("/bin/sleep", "x"), environment=(("A", "x"),), working_directory="/x")
    )
    assert len(text.split("\n")) == len(plain.split("\n"))
    assert split_words(directives(text, "ExecStart")[0], {}) == ["/bin/sleep", argument]
    assert split_words(directives(text, "Environment")[0]) == [f"A={value}"]


@pytest.mark.parametrize(
    ("change", "directive"),
    [
        ({"exec_start": ("sleep",)}, "ExecStart"),
        ({"exec_start": ()}, "ExecStart"),
        ({"exec_start": ("/bin/",)}, "ExecStart"),
        ({"exec_start": ("/bin/a$b",)}, "ExecStart"),
        ({"exec_start": ('/bin/a"b',)}, "ExecStart"),
        ({"exec_start": ("/bin/a", "b\nUser=root")}, "ExecStart"),
        ({"exec_start": ("/bin/a", "b\x00")}, "ExecStart"),
        ({"environment": (("A B", "x"),)}, "Environment"),
        ({"environment": (("A=B", "x"),)}, "Environment"),
        ({"environment": (("", "x"),)}, "Environment"),
        ({"environment": (("A", "x\ny"),)}, "Environment"),
        ({"environment_files": ("relative",)}, "EnvironmentFile"),
        ({"environment_files": ("-/etc/x",)}, "EnvironmentFile"),
        ({"credentials": (("a:b", "/etc/x"),)}, "LoadCredential"),
        ({"credentials": (("key", "name"),)}, "LoadCredential"),
        ({"credentials": (("key", "/etc/x\n"),)}, "LoadCredential"),
        ({"description": "a\nUser=root"}, "Description"),
        ({"user": "root\n"}, "User"),
        ({"user": "a b"}, "User"),
        ({"group": "%n"}, "Group"),
        ({"supplementary_groups": ("a b",)}, "SupplementaryGroups"),
        ({"slice": "a/b.slice"}, "Slice"),
        ({"slice": "../a.slice"}, "Slice"),
        ({"after": ("a.service b.service",)}, "After"),
        ({"binds_to": ("x",)}, "BindsTo"),
        ({"working_directory": "~"}, "WorkingDirectory"),
        ({"working_directory": "-/x"}, "WorkingDirectory"),
        ({"timeout_stop_s": 0}, "TimeoutStopSec"),
        ({"timeout_start_s": -1}, "TimeoutStartSec"),
        ({"timeout_start_s": float("inf")}, "TimeoutStartSec"),
        ({"watchdog_s": float("nan")}, "WatchdogSec"),
        ({"sandbox": Sandbox(read_only_paths=("weights",))}, "ReadOnlyPaths"),
        ({"sandbox": Sandbox(read_write_paths=("/home/../etc",))}, "BindPaths"),
        ({"sandbox": Sandbox(device_allow=("/etc/shadow",))}, "DeviceAllow"),
        ({"sandbox": Sandbox(device_allow=("/dev/x\n",))}, "DeviceAllow"),
        ({"record": UnitRecord("a\nb")}, "the header"),
        ({"record": UnitRecord("a", engine="b\nHold=yes")}, "Engine"),
    ],
)
def test_what_cannot_be_written_is_refused_by_the_name_of_its_directive(
    change: dict[str, object], directive: str
) -> None:
    unit = ServiceUnit(**{**{name: getattr(PLAIN, name) for name in ServiceUnit.__slots__}, **change})
    with pytest.raises(WordRefused, match=directive):
        render_unit(unit)


@pytest.mark.parametrize("description", ["model a", "model a\\", " model a \u2003", "\u00a0model a\n", "model a \\ \\"])
def test_a_description_never_keeps_a_unit_from_being_written(description: str) -> None:
    assert directives(render_unit(replace(PLAIN, description=description)), "Description") == ["model a"]


def test_a_line_longer_than_systemd_reads_is_refused() -> None:
    with pytest.raises(WordRefused, match="ExecStart"):
        render_unit(replace(PLAIN, exec_start=("/bin/sleep", *["x" * 100_000] * 11)))


def test_secrets_are_only_named_in_a_unit() -> None:
    text = render_unit(GPU)
    assert "LoadCredential=key:/run/llmgw/keys/a b%%" in text
    assert "--api-key-file=%d/key" in directives(text, "ExecStart")[0]


def test_paths_below_hidden_folders_are_mounted_into_them() -> None:
    text = render_unit(GPU)
    assert directives(text, "ProtectHome") == ["tmpfs"]
    assert directives(text, "BindPaths") == ['"-/home/u/c:d"', "-/tmp/x"]
    assert directives(text, "BindReadOnlyPaths") == ["-/root/w"]
    assert directives(text, "ReadWritePaths") == ['"-/var/lib/a b"']


def test_an_engine_without_cards_sees_no_device() -> None:
    assert directives(render_unit(PLAIN), "PrivateDevices") == ["yes"]
    assert directives(render_unit(GPU), "DeviceAllow") == ["/dev/nvidia0 rw", "char-nvidia-uvm rw"]
    assert directives(render_unit(GPU), "PrivateDevices") == []
