"""vLLM, SGLang and TensorRT-LLM: what their adapters say, held against the engines' own recorded words."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import ConfigError
from core.hardware import Card
from engines.adapter import Build, EngineSpec, Health, NodeFacts, Rendezvous
from engines.adapters.interpreter import LAUNCHERS
from engines.registry import get_adapter

DATA = Path(__file__).parents[2] / "data/engines"
HELPS = {"vllm": DATA / "vllm-0.32.0-help.txt", "sglang": DATA / "sglang-0.5.23-help.txt"}
CARDS = (Card(uuid="GPU-a", name="H100", index=1), Card(uuid="GPU-b", name="H100", index=0))
FACTS = NodeFacts(cpu_count=8, memory_total_mib=64_000, cards=CARDS)
BUILD = Build("any", "b", "1", Path("/opt/engines/e/b/bin/python"))
TORCH = ["vllm", "sglang"]
MEETING = Rendezvous(rank=1, size=2, address="10.0.0.1", port=29500, own_address="10.0.0.2")


def a_spec(engine: str, *, devices: tuple[str, ...] = (), **options: str | int | float | bool) -> EngineSpec:
    return EngineSpec(
        "r", engine, ("m",), 8201, weights=Path("/srv/m"), home=Path("/home/r"), devices=devices, options=options
    )


def widest(engine: str) -> tuple[str, ...]:
    """Every option that takes a value, on two nodes with two cards each."""
    options: dict[str, str | int | float | bool] = {
        "tensorParallel": 2, "pipelineParallel": 2, "memoryFraction": 0.8, "dtype": "auto", "quantization": "fp8",
        "lora": "a=/srv/a, b=/srv/b", "maxLoras": 4, "maxLoraRank": 16, "embeddings": True, "runtimeLora": True,
    }  # fmt: skip
    more = {"vllm": {"eager": True, "blockSize": 16, "kvCacheGib": 4}, "sglang": {"pageSize": 1, "maxTotalTokens": 64}}
    spec = a_spec(engine, devices=("GPU-a", "GPU-b"), **options, **more[engine])
    spec = replace(spec, rendezvous=MEETING, context_length=4096)
    return get_adapter(engine).build_command(spec, BUILD, FACTS).argv


@pytest.mark.parametrize("engine", TORCH)
@pytest.mark.parametrize("kind", ["widest", "smallest"])
def test_every_flag_of_ours_is_in_the_engines_own_help(engine: str, kind: str) -> None:
    smallest = get_adapter(engine).build_command(a_spec(engine), BUILD, FACTS).argv
    argv = widest(engine) if kind == "widest" else smallest
    known = set(HELPS[engine].read_text().replace(",", " ").replace("[", " ").replace("]", " ").split())

    flags = {word.partition("=")[0] for word in argv if word.startswith("--")}

    assert flags and flags <= known, flags - known


@pytest.mark.parametrize("engine", TORCH)
def test_the_interpreter_of_the_build_runs_our_launcher(engine: str) -> None:
    for name in ("python", "python3.12", "vllm"):
        build = replace(BUILD, executable=Path("/srv/env/bin") / name)
        argv = get_adapter(engine).build_command(a_spec(engine), build, FACTS).argv

        assert argv[0] == ("/srv/env/bin/python3.12" if name == "python3.12" else "/srv/env/bin/python")
        assert argv[1] == str(LAUNCHERS / "with_key.py")


@pytest.mark.parametrize("engine", [*TORCH, "trtllm"])
@pytest.mark.parametrize(
    ("devices", "nodes", "tensor", "pipeline", "expected"),
    [
        (0, 1, None, None, (1, 1)), (1, 1, None, None, (1, 1)), (4, 1, None, None, (4, 1)), (4, 1, 2, None, (2, 2)),
        (4, 1, None, 2, (2, 2)), (4, 1, 2, 2, (2, 2)), (4, 1, 3, None, None), (4, 1, 8, None, None),
        (4, 1, 4, 4, None), (0, 1, 2, None, None), (8, 2, None, None, (8, 2)), (8, 2, 16, None, (16, 1)),
        (8, 2, None, 1, (16, 1)), (8, 2, 8, 1, None), (0, 2, None, None, (1, 2)), (0, 2, 2, None, (2, 1)),
    ],
)  # fmt: skip
def test_a_model_is_spread_over_exactly_the_cards_it_gets(
    engine: str, devices: int, nodes: int, tensor: int | None, pipeline: int | None, expected: tuple[int, int] | None
) -> None:
    wished = {"tensorParallel": tensor, "pipelineParallel": pipeline}
    spec = a_spec(engine, devices=tuple(f"GPU-{n}" for n in range(devices)))
    spec = replace(spec, options={name: value for name, value in wished.items() if value is not None})
    if nodes > 1:
        if engine == "trtllm":
            return
        spec = replace(spec, rendezvous=replace(MEETING, size=nodes))
    adapter = get_adapter(engine)

    if expected is None:
        assert "cards" in " ".join(adapter.check_spec(spec))
        return
    argv = adapter.build_command(spec, BUILD, FACTS).argv
    names = {"vllm": ("--tensor-parallel-size", "--pipeline-parallel-size"), "sglang": ("--tp-size", "--pp-size")}
    sizes = tuple(int(argv[argv.index(flag) + 1]) for flag in names.get(engine, ("--tp_size", "--pp_size")))
    assert sizes == expected


@pytest.mark.parametrize("engine", TORCH)
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a=/srv/a", ""), ("a=/srv/a, b=/srv/b", ""), ("", ""), (" ", ""), ("a", "form"), ("a=", "form"),
        ("=/srv/a", "form"), ("--x=/srv/a", "form"), ("a=srv/a", "absolute"), ("a=/srv/../a", "absolute"),
        ("a=/srv/a,a=/srv/b", "another"), ("m=/srv/a", "another"), ("a=/srv/a=b", "form"), (",", "form"),
        ("a=/srv/a,", "form"), ("a=org/repo", "absolute"), ("a={\"x\":1}", "absolute"),
    ],
)  # fmt: skip
def test_adapters_are_names_with_absolute_paths(engine: str, text: str, problem: str) -> None:
    problems = get_adapter(engine).check_spec(a_spec(engine, devices=("GPU-a",), lora=text))

    assert (problem in " ".join(problems)) if problem else problems == []


def test_adapters_become_readable_and_are_named_to_the_engine() -> None:
    command = get_adapter("vllm").build_command(a_spec("vllm", lora="a=/srv/a, b=/srv/b"), BUILD, FACTS)
    at = command.argv.index("--lora-modules")

    assert command.argv[at + 1 : at + 3] == ("a=/srv/a", "b=/srv/b")
    assert {"/srv/a", "/srv/b", "/srv/m", "/opt/engines/e/b"} <= set(command.read_only_paths)


def test_several_names_for_vllm_and_one_that_begins_with_a_dash_alone() -> None:
    adapter = get_adapter("vllm")
    several = replace(a_spec("vllm"), served_models=("a", "b"))
    dashed = replace(a_spec("vllm"), served_models=("a", "-b"))

    argv = adapter.build_command(several, BUILD, FACTS).argv
    assert argv[argv.index("--served-model-name") :][1:3] == ("a", "b")
    assert "dash" in " ".join(adapter.check_spec(dashed))


def test_a_worker_of_vllm_serves_nothing_and_one_of_sglang_only_its_health() -> None:
    vllm, sglang = get_adapter("vllm"), get_adapter("sglang")
    worker = replace(a_spec("vllm"), rendezvous=MEETING)
    head = replace(worker, rendezvous=replace(MEETING, rank=0))

    assert "--headless" in vllm.build_command(worker, BUILD, FACTS).argv
    assert "--headless" not in vllm.build_command(head, BUILD, FACTS).argv
    assert (vllm.health_probe(worker).path, vllm.health_probe(head).path) == ("", "/health")
    assert sglang.health_probe(replace(worker, engine="sglang")).path == "/health"


@pytest.mark.parametrize(("engine", "name"), [("vllm", "VLLM_HOST_IP"), ("sglang", "SGLANG_HOST_IP")])
def test_a_member_is_told_its_own_address(engine: str, name: str) -> None:
    environment = get_adapter(engine).build_command(replace(a_spec(engine), rendezvous=MEETING), BUILD, FACTS)

    assert dict(environment.environment)[name] == "10.0.0.2"


@pytest.mark.parametrize("engine", [*TORCH, "trtllm"])
def test_a_build_that_takes_no_uuids_gets_the_numbers_by_slot(engine: str) -> None:
    build = replace(BUILD, takes_uuids=False)
    command = get_adapter(engine).build_command(a_spec(engine, devices=("GPU-a", "GPU-b")), build, FACTS)
    environment = dict(command.environment)

    assert environment["CUDA_VISIBLE_DEVICES"] == "1,0"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    with pytest.raises(ConfigError, match="has none"):
        get_adapter(engine).build_command(a_spec(engine, devices=("MIG-x",)), build, FACTS)


@pytest.mark.parametrize("engine", [*TORCH, "trtllm"])
def test_nobody_but_llmgw_decides_what_is_offline_and_visible(engine: str) -> None:
    spec = replace(a_spec(engine), env=(("HF_HUB_OFFLINE", "0"), ("CUDA_VISIBLE_DEVICES", "all"), ("NCCL_DEBUG", "1")))
    environment = dict(get_adapter(engine).build_command(spec, BUILD, FACTS).environment)

    assert (environment["HF_HUB_OFFLINE"], environment["CUDA_VISIBLE_DEVICES"]) == ("1", "")
    assert environment["NCCL_DEBUG"] == "1"


def test_recorded_metrics_are_read() -> None:
    vllm = get_adapter("vllm").read_progress((DATA / "vllm-0.32.0-metrics.txt").read_text())
    sglang = get_adapter("sglang").read_progress((DATA / "sglang-0.5.23-metrics.txt").read_text())

    for progress in (vllm, sglang):
        assert (progress.running, progress.waiting) == (0, 0)
        assert progress.tokens_total is not None and progress.tokens_total > 10


def test_a_dead_engine_process_behind_a_living_server_is_a_failure() -> None:
    assert get_adapter("vllm").read_health(503, b"") is Health.FAILED
    assert get_adapter("sglang").read_health(503, b"") is Health.LOADING


_SHOW = "import os, sys; print(sys.argv[1:], os.environ.get('THE_KEY'), [p for p in sys.path if 'launchers' in p])"


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("env:THE_KEY", "['--x', '1'] sk-1 []"),
        ("flag:--api-key", "['--api-key', 'sk-1', '--x', '1'] None []"),
    ],
)
def test_the_launcher_hands_the_key_on_inside_the_process(way: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(_SHOW)
    (tmp_path / "key").write_text("sk-1\n")
    argv = [sys.executable, str(LAUNCHERS / "with_key.py"), str(tmp_path / "key"), way, "shown", "--x", "1"]

    done = subprocess.run(argv, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=30)

    assert done.stdout.strip() == expected, done.stderr
    (tmp_path / "key").write_text("\n")
    assert subprocess.run(argv, env={}, capture_output=True, timeout=30).returncode == 1


_LOG = """
import logging, sys
logging.basicConfig(level="INFO", force=True, stream=sys.stdout, format="%(message)s")
logging.getLogger("engine").info(f"server_args={sys.argv}")
logging.getLogger("engine").info("args %s of %d", sys.argv, 1)
logging.getLogger("engine").info("nothing %s here", "secret")
"""


def test_an_engine_that_logs_its_arguments_does_not_log_the_key(tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(_LOG)
    (tmp_path / "key").write_text("sk-1\n")
    argv = [sys.executable, str(LAUNCHERS / "with_key.py"), str(tmp_path / "key"), "flag:--api-key", "shown"]

    done = subprocess.run(argv, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=30)

    first, second, third = done.stdout.splitlines()
    assert "sk-1" not in done.stdout + done.stderr
    assert "(key)" in first and "(key)" in second and third == "nothing secret here"


def test_the_launcher_stands_alone_in_its_folder() -> None:
    assert [path.name for path in LAUNCHERS.iterdir() if path.suffix == ".py"] == ["with_key.py"]
