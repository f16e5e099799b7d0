"""Unit file text to `EmbeddedUnit`, and the quantities in it."""

import math

import pytest

from units.embedded.parse import UnitUnreadable, parse_unit, split_command
from units.embedded.quantities import Limit, parse_bytes, parse_limit, parse_seconds, parse_timeout
from units.model import CREDENTIALS, KillMode, RestartPolicy, RestartWhen, ServiceType, ServiceUnit, UnitRecord
from units.render import render_unit

INFINITE = Limit(-1, -1)


def parse(*lines: str) -> dict[str, object]:
    """The fields of a unit with these lines of [Service]."""
    unit = parse_unit("a.service", "\n".join(("[Service]", "ExecStart=/bin/true", *lines)))
    return {name: getattr(unit, name) for name in unit.__dataclass_fields__}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5.0), ("0", 0.0), ("500ms", 0.5), ("1min 30s", 90.0), ("1min30s", 90.0), ("2h", 7200.0), ("1.5", 1.5),
        ("250us", 250e-6), ("1d", 86400.0), ("infinity", math.inf), (" 7 s ", 7.0), ("3 weeks", 3 * 604800.0),
    ],
)  # fmt: skip
def test_durations_are_systemds(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", " ", "x", "5x", "-1", "5 s x", "1e3", "nan", "inf", "1min 30parsec"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_seconds(text)


def test_a_timeout_of_nothing_is_none_at_all() -> None:
    assert (parse_timeout("0"), parse_timeout("3")) == (math.inf, 3.0)


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("1024", 1024), ("4G", 4 << 30), ("1.5M", 3 << 19), ("2 K", 2048), ("infinity", -1)]
)
def test_sizes_are_systemds(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "50%", "x", "-1", "4GB", "4g"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "limit"), [("1024", Limit(1024, 1024)), ("1:2", Limit(1, 2)), ("1:infinity", Limit(1, -1))]
)
def test_limits_are_one_or_two(text: str, limit: Limit) -> None:
    assert parse_limit(text) == limit


def test_what_we_render_is_what_is_read() -> None:
    unit = ServiceUnit(
        name="llmgw-engine-a.service",
        description="an engine",
        exec_start=("/bin/engine", "a b", "$HOME %n", f"--key={CREDENTIALS}/key"),
        record=UnitRecord("a"),
        type=ServiceType.NOTIFY,
        environment=(("A", "one 'two' %d $X"), ("B", "\u2028")),
        environment_files=("/etc/a b%",),
        credentials=(("key", "/run/keys/a%b c"),),
        user="u", group="g", supplementary_groups=("video", "render"), working_directory="/home/a b",
        restart=RestartPolicy(RestartWhen.ON_FAILURE, 1.5, 7, 60.0),
        timeout_start_s=300.0, timeout_stop_s=20.0, watchdog_s=30.0, memory_max_bytes=1 << 33,
        after=("b.service", "c.target"), wants=("d.service",), binds_to=("dev-nvidia0.device",),
        part_of=("e.service",), upholds=("f.service",),
    )  # fmt: skip
    found = parse_unit(unit.name, render_unit(unit))
    env = {"X": "not this"}
    assert split_command(found, env, {"d": "/creds"}) == ["/bin/engine", "a b", "$HOME %n", "--key=/creds/key"]
    assert (found.type, found.user, found.group, found.working_directory) == ("notify", "u", "g", "/home/a b")
    assert found.supplementary_groups == ("video", "render")
    assert (found.environment_files, found.credentials) == (("/etc/a b%",), (("key", "/run/keys/a%b c"),))
    assert (found.restart, found.restart_delay_s) == (RestartWhen.ON_FAILURE, 1.5)
    assert (found.start_limit_burst, found.start_limit_interval_s) == (7, 60.0)
    assert (found.timeout_start_s, found.timeout_stop_s, found.watchdog_s) == (300.0, 20.0, 30.0)
    assert (found.memory_max_bytes, found.limit_nofile, found.limit_memlock) == (1 << 33, Limit(65536, 65536), INFINITE)
    assert sorted(found.after | found.wants) == ["b.service", "c.target", "d.service"]
    assert [*found.binds_to, *found.part_of, *found.upholds] == ["dev-nvidia0.device", "e.service", "f.service"]
    assert found.unknown == ()
    assert {"ProtectSystem", "CapabilityBoundingSet", "SystemCallFilter", "DevicePolicy"} <= set(found.unconfined)


def test_sections_of_others_comments_and_joined_lines_are_read_as_systemd_does() -> None:
    unit = parse_unit(
        "a.service",
        "\ufeff# c\n[X-Llmgw]\nExecStart=/bin/no\nUser=no\n[Service]\n; c\nExecStart=/bin/true \\\n  one \\\n two\r\n",
    )
    assert split_command(unit, {}, {}) == ["/bin/true", "one", "two"]
    assert unit.user == ""


def test_a_list_grows_and_an_empty_assignment_clears_it() -> None:
    assert parse("Environment=A=1", "Environment=B=2")["environment"] == ("A=1", "B=2")
    assert parse("Environment=A=1", "Environment=", "Environment=B=2")["environment"] == ("B=2",)
    assert parse("User=a", "User=b")["user"] == "b"


@pytest.mark.parametrize(
    ("line", "field", "default"),
    [
        ("Restart=sometimes", "restart", RestartWhen.NO),
        ("Type=forking", "type", ServiceType.EXEC),
        ("RestartSec=soon", "restart_delay_s", 0.1),
        ("StartLimitBurst=many", "start_limit_burst", 5),
        ("MemoryMax=50%", "memory_max_bytes", -1),
        ("LimitNOFILE=lots", "limit_nofile", None),
        ("WatchdogSec=-1", "watchdog_s", 0.0),
        ("NotifyAccess=everybody", "notify_access_all", False),
        ("NoNewPrivileges=perhaps", "no_new_privileges", False),
        ("LoadCredential=../x:/etc/shadow", "credentials", ()),
        ("LoadCredential=x:relative", "credentials", ()),
    ],
)
def test_a_value_that_makes_no_sense_is_named_and_ignored(line: str, field: str, default: object) -> None:
    fields = parse(line)
    assert fields[field] == default
    assert fields["unknown"] == (line,)


@pytest.mark.parametrize("mode", list(KillMode))
def test_both_ways_to_kill_that_units_of_ours_have_are_read(mode: KillMode) -> None:
    fields = parse(f"KillMode={mode}")
    assert (fields["kill_mode"], fields["unknown"]) == (mode, ())


def test_other_ways_to_kill_are_named() -> None:
    assert parse("KillMode=process")["unknown"] == ("KillMode=process",)


def test_unknown_directives_are_named_and_confining_ones_apart() -> None:
    fields = parse("ExecStartPre=/bin/x", "ProtectHome=yes", "Slice=a.slice", "PrivateTmp=yes")
    assert fields["unknown"] == ("ExecStartPre=",)
    assert fields["unconfined"] == ("PrivateTmp", "ProtectHome")


@pytest.mark.parametrize(
    "text",
    [
        "", "[Service]\n", "[Service]\nExecStart=\n", "[Service]\nExecStart=/a\nExecStart=/b\n",
        '[Service]\nExecStart="/a\n', "[Service]\nExecStart=/a \\q\n", "[Service]\nExecStart=/a ; /b\n",
        "[Service]\nExecStart=/a %n\n", "[Service]\nExecStart=-\n", "[Service]\nExecStart=/a\nEnvironment='A\n",
        "[Service]\nExecStart=/a\nAfter='x\n", "\0" * 100, "[Service\nExecStart", "=", "[]=",
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_refused_in_words(text: str) -> None:
    with pytest.raises(UnitUnreadable, match=r"a\.service"):
        parse_unit("a.service", text)
