"""How a gate and ComfyUI are started."""

from dataclasses import replace
from pathlib import Path

import pytest

from engines.adapter import KEY_FILE, Build, EngineSpec, NodeFacts
from engines.adapters.comfyui import ComfyUiAdapter, models_file
from engines.gates.comfyui.allowance import Allowance
from engines.gates.command import GatePlace, build_gate_command
from engines.gates.settings import parse_settings
from engines.policy import check_args
from engines.registry import get_adapter

SPEC = EngineSpec(
    "r",
    "comfyui",
    ("art", "-x"),
    8202,
    home=Path("/h"),
    options={
        "allowNodes": "A, B b ,",
        "customNodes": "n1,n2",
        "callerFilesMib": 7,
        "keepHours": 0,
    },
)
BUILD = Build("comfyui", "own", "own", Path("/venv/bin/python"), folder=Path("/srv/ComfyUI"))
PLACE = GatePlace(8201, 8202, Path("/s"))


def test_a_gates_command_is_understood_by_the_gate(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sk-1\n")
    command = build_gate_command(get_adapter("comfyui"), SPEC, PLACE)
    words = [word.replace(KEY_FILE, str(key)) for word in command.argv]
    settings = parse_settings(words[words.index("engines.gates") + 1 :])
    assert (settings.kind, settings.port, settings.engine_port, settings.state) == ("comfyui", 8201, 8202, Path("/s"))
    assert settings.models == ("art", "-x")
    assert settings.nodes == {"A", "B b"}
    assert settings.key.reveal() == "sk-1" and "sk-1" not in str(settings)
    assert command.read_write_paths == ("/s", "/h/base")
    assert (settings.base, settings.allowance) == (Path("/h/base"), Allowance(caller_bytes=7 << 20, keep_s=0.0))


def test_a_generic_gate_is_told_its_routes() -> None:
    command = build_gate_command(get_adapter("trtllm"), replace(SPEC, engine="trtllm"), PLACE)
    assert {word for word in command.argv if word.startswith("--route=")} == {
        "--route=/v1/chat/completions", "--route=/v1/completions",
    }  # fmt: skip
    assert "--state" not in command.argv


def test_comfyui_stays_on_loopback_in_a_home_of_its_own_without_foreign_code() -> None:
    command = ComfyUiAdapter().build_command(SPEC, BUILD, NodeFacts(2, 1000))
    line = " ".join(command.argv)
    assert line.startswith(
        "/venv/bin/python /srv/ComfyUI/main.py --listen 127.0.0.1 --port 8202 --base-directory /h/base"
    )
    assert "--whitelist-custom-nodes n1 n2 --disable-all-custom-nodes" in line
    assert "--disable-api-nodes" in line and command.argv[-1] == "--cpu"
    assert all(path.startswith("/h/") for path in (*command.folders, *dict(command.files)))
    assert "--cpu" not in ComfyUiAdapter().build_command(replace(SPEC, devices=("GPU-1",)), BUILD, NodeFacts(2, 1)).argv


@pytest.mark.parametrize(
    ("weights", "line"),
    [
        (None, "  checkpoints: '/srv/ComfyUI/models/checkpoints'"),
        (Path("/w/my models"), "  loras: '/w/my models/loras'"),
        (Path("/w/x.safetensors"), "  checkpoints: '/w'"), (Path("/w/it's: #1"), "  vae: '/w/it''s: #1/vae'"),
    ],
)  # fmt: skip
def test_models_are_found_where_the_weights_are(weights: Path | None, line: str) -> None:
    assert line in models_file(weights, Path("/srv/ComfyUI")).splitlines()


@pytest.mark.parametrize(
    "option",
    [
        {"allowNodes": "../x"},
        {"customNodes": "a/b"},
        {"customNodes": "--port"},
        {"allowNodes": "-x"},
        {"callerFilesMib": 0},
        {"filesMib": -1},
        {"filesMib": "many"},
        {"keepHours": -1},
        {"keepHour": 1},
    ],
)
def test_options_that_are_none_are_problems(option: dict[str, str | int]) -> None:
    assert ComfyUiAdapter().check_spec(replace(SPEC, options=option))


@pytest.mark.parametrize(
    "args",
    [
        ["--listen", "0.0.0.0"], ["--lis=0.0.0.0"], ["--enable-cors-header"], ["--output-directory=/etc"],
        ["--user-dir=/x"],
        ["--extra-model-paths-config=/x"], ["--white", "evil"], ["--front-end-version", "evil/x@1"], ["--multi-user"],
        ["--enable-manager"], ["--tls-keyfile=/x"], ["--some-new-flag"], ["--cuda-device", "1"], ["-h"],
    ],
    ids=str,
)  # fmt: skip
def test_what_opens_comfyui_may_not_be_added(args: list[str]) -> None:
    assert check_args("comfyui", args)


def test_what_tunes_it_may() -> None:
    assert check_args("comfyui", ["--lowvram", "--fp8_e4m3fn-unet", "--reserve-vram", "1.5", "--fast"]) == []
