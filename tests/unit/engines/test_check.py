"""engine-check against recorded helps: whole, cut short anywhere, with a flag renamed, or somebody else's."""

from pathlib import Path

import pytest

from engines.adapter import Build
from engines.adapters import llamacpp, sglang, vllm
from engines.check import FAILED, OK, WARNING, WIDEST, check_help, help_command, widest_flags
from engines.help import parse_help
from engines.registry import get_adapter

DATA = Path(__file__).parents[2] / "data/engines"
HELPS = {
    "llamacpp": DATA / "llama-server-b10068-help.txt",
    "vllm": DATA / "vllm-0.32.0-help.txt",
    "sglang": DATA / "sglang-0.5.23-help.txt",
    "comfyui": DATA / "comfyui-0.3.64-help.txt",  # its flags without what it says of them
}
RENAMED = [
    ("llamacpp", "--ctx-size", "--context-size"), ("llamacpp", "--metrics", "--enable-metrics"),
    ("vllm", "--max-model-len", "--max-model-length"), ("vllm", "--lora-modules", "--lora-module"),
    ("vllm", "--headless", "--no-head"), ("sglang", "--served-model-name", "--serve-model-name"),
    ("sglang", "--dist-init-addr", "--dist-init-address"), ("sglang", "--api-key", "--apikey"),
    ("comfyui", "--whitelist-custom-nodes", "--whitelist-custom-node"), ("comfyui", "--database-url", "--db-url"),
]  # fmt: skip


@pytest.mark.parametrize("engine", HELPS)
def test_a_whole_help_has_every_flag_that_we_use(engine: str) -> None:
    findings = check_help(get_adapter(engine), HELPS[engine].read_text())

    assert [finding.status for finding in findings] == [OK]
    assert str(len(widest_flags(get_adapter(engine)))) in findings[0].found


@pytest.mark.parametrize(("engine", "flag", "now"), RENAMED)
def test_a_renamed_flag_blocks_and_its_new_name_is_suggested(engine: str, flag: str, now: str) -> None:
    findings = check_help(get_adapter(engine), HELPS[engine].read_text().replace(flag, now))

    blocking = [finding for finding in findings if finding.status == FAILED]
    assert [finding.check for finding in blocking] == [f"flag {flag}"]
    assert now in blocking[0].found or len(now) < 10
    assert blocking[0].remedy


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("part", [0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97])
def test_a_help_that_was_cut_short_is_a_warning_and_blocks_nothing(engine: str, part: float) -> None:
    text = HELPS[engine].read_text()

    findings = check_help(get_adapter(engine), text[: int(len(text) * part)])

    assert len(findings) == 1
    assert findings[0].status == WARNING or "names no flags" in findings[0].found


def test_the_short_help_of_vllm_is_known_for_what_it_is() -> None:
    short = (
        "usage: vllm serve [model_tag] [options]\n\nConfig Groups:\n  Frontend   x\n\noptions:\n  -h, --help  show\n"
    )

    assert check_help(get_adapter("vllm"), short)[0].status == WARNING


@pytest.mark.parametrize(
    "text", ["", "\x00\xff", "command not found", "Traceback (most recent call last):\n  File", "-"]
)
@pytest.mark.parametrize("engine", HELPS)
def test_what_is_no_help_blocks(engine: str, text: str) -> None:
    findings = check_help(get_adapter(engine), text)

    assert [finding.status for finding in findings] == [FAILED]


def test_pythons_own_help_is_not_an_engines() -> None:
    text = (
        "usage: python [option] ... [-c cmd | -m mod | file | -] [arg] ...\nOptions:\n-b     : issue\n-h     : print\n"
    )

    assert all(finding.status != OK for finding in check_help(get_adapter("sglang"), text))


def test_colours_and_line_ends_of_a_terminal_do_not_matter() -> None:
    text = HELPS["vllm"].read_text().replace("  --", "  \x1b[32m--").replace("\n", "\r\n")

    assert check_help(get_adapter("vllm"), text)[0].status == OK


@pytest.mark.parametrize(("engine", "options"), [("llamacpp", llamacpp), ("vllm", vllm), ("sglang", sglang)])
def test_the_widest_command_sets_every_option_that_there_is(engine: str, options: object) -> None:
    known = set(vars(options)["_OPTIONS"])

    assert set().union(*WIDEST[engine]) == known


@pytest.mark.parametrize("engine", HELPS)
def test_what_the_policy_refuses_as_ours_is_what_we_use(engine: str) -> None:
    assert widest_flags(get_adapter(engine)) <= parse_help(HELPS[engine].read_text()).names


def test_each_engine_is_asked_in_its_own_way() -> None:
    build = Build("x", "b", "1", Path("/opt/b/bin/python"))

    assert help_command(get_adapter("vllm"), build)[0][-1] == "--help=all"
    assert help_command(get_adapter("vllm"), build)[1]["VLLM_TARGET_DEVICE"] == "cpu"
    assert "sglang.launch_server" in help_command(get_adapter("sglang"), build)[0]
    assert help_command(get_adapter("llamacpp"), build)[0] == ("/opt/b/bin/python", "--help")


@pytest.mark.parametrize(
    ("line", "names", "arity"),
    [
        ("  --config CONFIG       Read", ("--config",), "1"),
        ("  --sleep-on-idle       Reduce", ("--sleep-on-idle",), "0"),
        ("  -h, --help            show", ("-h", "--help"), "0"),
        ("-t,    --threads N      n", ("-t", "--threads"), "1"),
        ("  --api-key API_KEY [API_KEY ...]", ("--api-key",), "+"), ("  --hf-token [HF_TOKEN]", ("--hf-token",), "?"),
        ("  --lora-paths [LORA_PATHS ...]", ("--lora-paths",), "*"), ("  --convert {auto,none}", ("--convert",), "1"),
        ("  --config-format ['auto', 'hf']", ("--config-format",), "1"),
        ("  --quantization Q, -q Q", ("--quantization", "-q"), "1"),
        ("  --enable-lora, --no-enable-lora", ("--enable-lora", "--no-enable-lora"), "0"),
    ],
)  # fmt: skip
def test_lines_of_a_help_are_read(line: str, names: tuple[str, ...], arity: str) -> None:
    flag = parse_help(line).flags[0]

    assert (flag.names, flag.arity) == (names, arity)


@pytest.mark.parametrize("line", ["        --deep  is text", "usage: x [--a]", "text -x", "", "  - item", "positional"])
def test_other_lines_are_not(line: str) -> None:
    assert parse_help(line).flags == ()
