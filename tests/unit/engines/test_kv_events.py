"""What an engine is told when the events of its cache are wanted, and when they cannot be had."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engines.adapter import Build, EngineSpec, NodeFacts, Rendezvous
from engines.kv_events import kv_events
from engines.registry import get_adapter

FACTS = NodeFacts(cpu_count=2, memory_total_mib=4096)
BUILD = Build("any", "b", "1", Path("/opt/engines/e/b/bin/python"))
ENGINES = ["vllm", "sglang"]
SOCKETS = Path("/run/llmgw/sock/0123456789ab")


def a_spec(engine: str, *, wanted: bool = True, args: tuple[str, ...] = ()) -> EngineSpec:
    return EngineSpec(
        "r", engine, ("m",), 8201, weights=Path("/srv/m"), home=Path("/home/r"), sockets=SOCKETS, args=args,
        options={"kvEvents": wanted},
    )  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_they_go_to_unix_sockets_where_nobody_but_root_comes_in_and_never_to_a_port(engine: str) -> None:
    command = get_adapter(engine).build_command(a_spec(engine), BUILD, FACTS)
    told = json.loads(command.argv[command.argv.index("--kv-events-config") + 1])

    assert (told["publisher"], told["endpoint"]) == ("zmq", f"ipc://{SOCKETS}/kv")
    assert told["replay_endpoint"] == f"ipc://{SOCKETS}/old"
    assert "tcp" not in json.dumps(told)
    assert str(SOCKETS) in command.read_write_paths
    assert dict(command.environment)["PYTHONHASHSEED"] == "0"


@pytest.mark.parametrize("engine", ENGINES)
def test_nobody_asked_for_them_and_nothing_is_different(engine: str) -> None:
    spec = a_spec(engine, wanted=False)
    command = get_adapter(engine).build_command(spec, BUILD, FACTS)

    assert command == get_adapter(engine).build_command(replace(spec, options={}), BUILD, FACTS)
    assert kv_events(spec) is None
    assert "--kv-events-config" not in command.argv and "PYTHONHASHSEED" not in dict(command.environment)


@pytest.mark.parametrize("engine", ENGINES)
def test_of_a_group_only_the_head_tells_and_all_have_the_same_seed(engine: str) -> None:
    for rank, tells in ((0, True), (1, False)):
        spec = replace(a_spec(engine), rendezvous=Rendezvous(rank, 2, "10.0.0.1", 29500))
        command = get_adapter(engine).build_command(spec, BUILD, FACTS)
        assert ("--kv-events-config" in command.argv) is tells
        assert dict(command.environment)["PYTHONHASHSEED"] == "0"


@pytest.mark.parametrize(
    ("engine", "args", "problem"),
    [
        ("vllm", (), ""),
        ("vllm", ("--enable-prefix-caching",), ""),
        ("vllm", ("--no-enable-prefix-caching",), "turns that off"),
        ("vllm", ("--no_enable_prefix_caching",), "turns that off"),
        ("vllm", ("--no-enable-prefix",), "turns that off"),
        ("sglang", (), ""),
        ("sglang", ("--disable-radix-cache",), "turns that off"),
        ("sglang", ("--disable-rad",), "turns that off"),
        ("sglang", ("--disable-cuda-graph",), ""),
    ],
)
def test_they_need_the_cache_that_they_tell_of(engine: str, args: tuple[str, ...], problem: str) -> None:
    adapter = get_adapter(engine)
    problems = adapter.check_spec(a_spec(engine, args=args))

    assert (problem in " ".join(problems)) if problem else problems == []
    assert adapter.check_spec(a_spec(engine, wanted=False, args=args)) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_path_too_long_for_a_socket_is_a_problem(engine: str) -> None:
    spec = replace(a_spec(engine), sockets=Path("/srv/" + 100 * "x"))

    assert "more than 107 bytes" in " ".join(get_adapter(engine).check_spec(spec))


def test_an_engine_that_has_none_says_so() -> None:
    spec = replace(a_spec("llamacpp"), engine="llamacpp")

    assert "options.kvEvents is not an option" in " ".join(get_adapter("llamacpp").check_spec(spec))
