"""Config files, unit files and nvidia-smi's words from nowhere: refused in our own words, or what they say."""

from dataclasses import replace
from pathlib import Path

from core.config.load import parse_config
from core.config.problem import ConfigErrors
from daemon.hardware.nvidia import OutputUnreadable, parse_list, parse_nvlinks, parse_query
from daemon.hardware.nvidia_failure import judge_failure, lost_card
from daemon.hardware.nvidia_report import parse_report
from tests.fuzz.mutation import Mutator, fuzz
from tests.unit.units.samples import GPU, PLAIN
from units.embedded.environment import build_environment
from units.embedded.parse import UnitUnreadable, parse_unit, split_command
from units.model import CREDENTIALS, ServiceUnit
from units.record import RecordUnreadable, parse_record
from units.render import render_unit
from units.words import WordRefused

_MACHINES = Path(__file__).parents[1] / "data" / "nvidia-smi"
_CONFIGS = [
    b"server:\n  host: 127.0.0.1\n  port: 8100\nmodels:\n- id: m\n  runtime: r\n"
    b"runtimes:\n  r:\n    engine: sim\n    args: [-x, '1']\n",
    b'{"runtimes": {"r": {"command": ["/bin/x", "${HOME}"], "env": {"A": "b"}, "gpus": 2}}, "aliases": {"a": "m"}}',
    b"a: &x [1, 2]\nb: *x\nsecurity:\n  apiKeys: ['${KEY}', \"k\"]\nlogging: {level: debug}\n",
]
_YAML_WORDS = [
    b"${HOME}", b"${", b"}", b"&x ", b"*x", b"!!python/object:os.system ", b"!!binary ", b"<<: *x", b": ", b"- ", b"? ",
    b"%YAML 1.1\n---\n", b"\n...\n", b"#", b"'", b'"', b"[" * 500, b"{" * 500, b"1e400", b".inf", b"0o17",
    b"2026-01-01", b"|\n", b"\xef\xbb\xbf", b"\x85", b"yes", b"~", b"port: 99999\n", b"\t",
]  # fmt: skip


def test_a_config_is_taken_or_refused_with_its_problems() -> None:
    def check(data: bytes, mutator: Mutator) -> None:
        try:
            parse_config(data, Path("/etc/llmgw/config.yaml"), {"HOME": "/root", "KEY": "a: b\n- c"})
        except ConfigErrors as errors:
            assert errors.render()

    fuzz("config", _CONFIGS, _YAML_WORDS, check)


_SMI_WORDS = [
    b"[N/A]",
    b"[Not Supported]",
    b"ERR!",
    b"MiB",
    b"<gpu>",
    b"</gpu>",
    b"GPU 0: ",
    b"(UUID: ",
    b", ",
    b"&x;",
    b"<!DOCTYPE x>",
]


def test_what_nvidia_smi_prints_is_read_or_said_to_be_unreadable() -> None:
    samples = [path.read_bytes() for path in sorted(_MACHINES.rglob("*")) if path.is_file()]

    def check(data: bytes, mutator: Mutator) -> None:
        text = data.decode("utf-8", "replace")
        for parse in (parse_query, parse_list, parse_nvlinks, parse_report):
            try:
                parse(text)
            except OutputUnreadable as error:
                assert error.render()
        assert judge_failure(mutator.chance.choice((0, 1, 9, 12, 255, -9)), data).code
        lost_card(data)

    fuzz("nvidia-smi", samples, _SMI_WORDS, check)


_UNIT_WORDS = [
    b"a b", b"$HOME", b"${X}", b"%n", b"%%", b"'", b'"', b"\\", b"\\x41", b";", b"@-:+!", b"#",
    b"\nExecStartPre=/bin/false\n",
    b"[Service]", b"\x7f", b"=", b"\\\n", CREDENTIALS.encode(),
]  # fmt: skip


def _unit(words: list[str]) -> ServiceUnit:
    """A unit with these words wherever a config's values can come to stand."""
    first, second, third = (words + ["", "", ""])[:3]
    return replace(
        PLAIN,
        description=f"runtime {first}",
        exec_start=("/usr/bin/env", *words),
        environment=(("A", first), ("B", second)),
        working_directory=f"/srv/{third}",
        record=replace(PLAIN.record, engine=first, build=second, devices=tuple(filter(None, words))),
    )


def test_a_unit_file_says_what_it_was_made_of_or_is_not_made() -> None:
    def check(data: bytes, mutator: Mutator) -> None:
        unit = _unit([piece.decode("utf-8", "surrogateescape") for piece in mutator.cuts(data)[:12]])
        try:
            text = render_unit(unit)
        except WordRefused as error:
            assert error.render()
            return
        read = parse_unit(unit.name, text)
        command = split_command(read, {}, {"d": "CREDENTIALS"})
        assert command == [word.replace(CREDENTIALS, "CREDENTIALS") for word in unit.exec_start]
        assert build_environment(read, None, {}).items() >= dict(unit.environment).items()
        assert parse_record(text) == unit.record
        assert [line for line in text.split("\n") if line.startswith("Exec")] == [
            line for line in text.split("\n") if line.startswith("ExecStart=")
        ]

    fuzz("render", [b"--model /srv/x y", b"plain", "é %i $X".encode()], _UNIT_WORDS, check)


def test_a_unit_file_from_nowhere_is_read_or_said_to_be_unreadable() -> None:
    samples = [render_unit(unit).encode() for unit in (PLAIN, GPU)]

    def check(data: bytes, mutator: Mutator) -> None:
        text = data.decode("utf-8", "replace")
        try:
            parse_unit(PLAIN.name, text)
        except UnitUnreadable as error:
            assert error.render()
        try:
            parse_record(text)
        except RecordUnreadable as error:
            assert error.render()

    fuzz("unit files", samples, _UNIT_WORDS, check)
