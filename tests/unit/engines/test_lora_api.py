"""What engines are told and say of LoRA adapters, in their own recorded words; and the flags that make room."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engines.adapter import Lora
from engines.adapters.lora import readable_adapters
from engines.lora_api import load_body, read_loaded, read_refusal, request_name, unload_body
from engines.registry import get_adapter, names
from tests.unit.engines.test_vllm_sglang import BUILD, FACTS, a_spec

CARDS = b"""{"object":"list","data":[
 {"id":"base","object":"model","owned_by":"vllm","root":"/srv/m","parent":null,"max_model_len":1024},
 {"id":"fixed","object":"model","owned_by":"vllm","root":"/srv/f","parent":"base","max_model_len":null},
 {"id":"sql","object":"model","owned_by":"vllm","root":"/srv/s","parent":"base","max_model_len":null}]}"""


def test_what_is_loaded_is_read_from_the_list_of_models() -> None:
    assert read_loaded(CARDS, ["fixed"]) == ["sql"]
    assert read_loaded(CARDS, []) == ["fixed", "sql"]
    assert read_loaded(b'{"data":[]}', []) == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data":[{"id":1}]}', b'{"data":{"id":"x"}}', b"\xff"])
def test_what_is_no_list_says_nothing(body: bytes) -> None:
    assert read_loaded(body, []) is None


REFUSALS = [
    (b'{"error":{"message":"No adapter found for /x","type":"NotFoundError","code":404}}', "No adapter found for /x"),
    (b'{"object":"error","message":"The lora adapter is there."}', "The lora adapter is there"),
    (b'{"success":false,"error_message":"LoRA is not enabled.\\n Use it.","loaded_adapters":{}}',
     "LoRA is not enabled. Use it"),
    (b"Internal Server Error", "Internal Server Error"),
    (b"", "it answered 500"),
    (b"\xff\xfe", "\ufffd\ufffd"),
    (json.dumps({"message": "x" * 1000}).encode(), "x" * 300),
]  # fmt: skip


@pytest.mark.parametrize(("body", "words"), REFUSALS)
def test_a_refusal_is_told_in_the_engines_own_words_on_one_line(body: bytes, words: str) -> None:
    assert read_refusal(500, body) == words


def test_a_name_is_data_and_never_a_part_of_the_message() -> None:
    name = 'a","lora_path":"/etc'
    assert json.loads(load_body(name, Path("/srv/x"))) == {"lora_name": name, "lora_path": "/srv/x"}
    assert json.loads(unload_body(name)) == {"lora_name": name}


@pytest.mark.parametrize("name", names())
def test_who_loads_at_run_time_says_how(name: str) -> None:
    adapter = get_adapter(name)
    assert (adapter.lora is Lora.AT_RUN_TIME) == (adapter.lora_api is not None)


def test_the_calls_are_no_routes_that_the_gateway_passes() -> None:
    for name in names():
        adapter = get_adapter(name)
        if adapter.lora_api is not None:
            assert not {adapter.lora_api.load, adapter.lora_api.unload} & adapter.routes


def test_a_request_names_the_adapter_as_the_engine_wants_it() -> None:
    calls = {name: get_adapter(name).lora_api for name in ("vllm", "sglang")}
    assert calls["vllm"] is not None and request_name(calls["vllm"], "base", "sql") == "sql"
    assert calls["sglang"] is not None and request_name(calls["sglang"], "base", "sql") == "base:sql"


@pytest.mark.parametrize(
    ("options", "slots", "flags"),
    [
        ({}, 0, []),
        ({"runtimeLora": True}, 0, []),
        ({}, 2, ["--enable-lora", "--max-loras=2", "--max-cpu-loras=2"]),
        ({"maxLoras": 1}, 2, ["--enable-lora", "--max-loras=1", "--max-cpu-loras=2"]),
        ({"maxLoras": 8}, 2, ["--enable-lora", "--max-loras=8", "--max-cpu-loras=8"]),
        ({"maxLoraRank": 64}, 2, ["--enable-lora", "--max-lora-rank=64", "--max-loras=2", "--max-cpu-loras=2"]),
        ({"lora": "a=/a"}, 2, ["--enable-lora", "--max-loras=3", "--max-cpu-loras=3", "--lora-modules", "a=/a"]),
        ({"lora": "a=/a"}, 0, ["--enable-lora", "--lora-modules", "a=/a"]),
    ],
)  # fmt: skip
def test_vllm_keeps_room_for_what_will_be_loaded(
    options: dict[str, str | int | float | bool], slots: int, flags: list[str]
) -> None:
    spec = replace(a_spec("vllm"), options=options, adapter_slots=slots, adapter_paths=("/srv/x",))
    command = get_adapter("vllm").build_command(spec, BUILD, FACTS)
    lora = [word for word in command.argv if "lora" in word.partition("-")[2] or word.startswith("a=")]
    assert lora == flags
    assert dict(command.environment).get("VLLM_ALLOW_RUNTIME_LORA_UPDATING") == ("True" if slots else None)
    assert "/srv/x" in command.read_only_paths and set(readable_adapters(spec)) <= set(command.read_only_paths)


@pytest.mark.parametrize(
    ("engine", "args"), [("vllm", ("-asc=2",)), ("sglang", ("--tokenizer-worker-num", "2"))], ids=["vllm", "sglang"]
)
def test_several_servers_are_refused_only_where_adapters_come_and_go(engine: str, args: tuple[str, ...]) -> None:
    spec = replace(a_spec(engine, devices=("GPU-a",)), args=args)
    adapter = get_adapter(engine)

    assert adapter.check_spec(spec) == []
    assert adapter.check_spec(replace(spec, options={"lora": "a=/a"})) == []
    (problem,) = adapter.check_spec(replace(spec, adapter_slots=2))
    assert repr(args[0]) in problem and "several servers" in problem


def test_sglang_is_told_how_large_adapters_may_be_and_that_it_needs_a_card() -> None:
    spec = replace(a_spec("sglang", devices=("GPU-a",)), adapter_slots=2)
    argv = get_adapter("sglang").build_command(spec, BUILD, FACTS).argv
    at = argv.index("--enable-lora")
    assert argv[at : at + 4] == ("--enable-lora", "--max-lora-rank=64", "--lora-target-modules", "all")
    assert get_adapter("sglang").check_spec(replace(spec, devices=())) == [
        "adapters need a card: sglang cannot load them on the CPU"
    ]
