"""What adding a model does to the config, and when it refuses."""

from pathlib import Path

import pytest

from cli.addition import ModelExists, Request, apply_addition, model_id_of, plan_addition
from core.config.load import Loaded, parse_config
from core.config.schema import Config
from core.config.write import render_edit

PATH = Path("/etc/llmgw/config.yaml")


def loaded(text: str) -> Loaded:
    return parse_config(text.encode(), PATH, {})


def added(text: str, request: Request) -> str:
    """The config's text after the addition."""
    addition = plan_addition(request, loaded(text).config)
    return render_edit(text.encode(), PATH, lambda document: apply_addition(document, addition))


EXISTING = """\
# mine
server:
  port: 8123  # not the usual one

models:
  - id: qwen
    runtime: big
aliases:
  chat: qwen
runtimes:
  big:
    engine: llamacpp
    weights: /srv/qwen.gguf
    contextLength: 4096
"""


def test_a_model_and_its_runtime_are_added_and_comments_stay() -> None:
    text = added(EXISTING, Request("new", "llamacpp", "/srv/new.gguf", context_length=2048))

    assert text.startswith("# mine\n") and "# not the usual one" in text
    config = loaded(text).config
    assert [(model.id, model.runtime) for model in config.models] == [("qwen", "big"), ("new", "new")]
    runtime = config.runtimes["new"]
    assert (runtime.engine, runtime.weights, runtime.context_length, runtime.keep_warm) == (
        "llamacpp",
        "/srv/new.gguf",
        2048,
        True,
    )
    assert config.runtimes["big"] == loaded(EXISTING).config.runtimes["big"]


@pytest.mark.parametrize("before", ["", "# only a comment\n", "models:\nruntimes:\n", "models: []\nruntimes: {}\n"])
def test_an_empty_config_takes_a_model_whatever_its_emptiness_looks_like(before: str) -> None:
    config = loaded(added(before, Request("m", "sim"))).config

    assert [model.id for model in config.models] == ["m"]
    assert config.runtimes["m"].engine == "sim"


def test_the_same_request_twice_changes_nothing() -> None:
    request = Request("new", "llamacpp", "/srv/new.gguf", context_length=2048, keep_warm=False)
    once = added(EXISTING, request)

    assert not plan_addition(request, loaded(once).config).changes
    assert added(once, request) == once


def test_what_is_asked_again_with_another_setting_changes_only_that() -> None:
    request = Request("qwen", "llamacpp", "/srv/qwen.gguf", context_length=8192, memory_gb=6.5)

    addition = plan_addition(request, loaded(EXISTING).config)

    assert (addition.runtime_id, dict(addition.model), dict(addition.runtime)) == (
        "big",
        {},
        {"memoryGb": 6.5, "contextLength": 8192},
    )


def test_cards_slots_kind_and_options_are_written_once() -> None:
    request = Request(
        "e", "vllm", "/srv/e", gpus=("GPU-a",), max_concurrency=8, kind="embedding", options={"embeddings": True}
    )
    once = added(EXISTING, request)
    config = loaded(once).config

    assert config.models[-1].kind == "embedding"
    runtime = config.runtimes["e"]
    assert (runtime.gpus, runtime.max_concurrency, runtime.options) == (["GPU-a"], 8, {"embeddings": True})
    assert added(once, request) == once
    with pytest.raises(ModelExists, match="of kind embedding"):
        plan_addition(Request("e", "vllm", "/srv/e", kind="chat"), config)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request("qwen", "llamacpp", "/srv/other.gguf"), "exists already"),
        (Request("qwen", "sim"), "exists already"),
        (Request("big", "sim"), "serves something else"),
        (Request("chat", "sim"), "is an alias"),
    ],
)
def test_an_id_that_is_taken_by_something_else_is_a_conflict(request_: Request, words: str) -> None:
    with pytest.raises(ModelExists, match=words):
        plan_addition(request_, loaded(EXISTING).config)


@pytest.mark.parametrize(
    "value",
    [
        "/srv/a${HOME}b.gguf",
        "/srv/$$.gguf",
        "/srv/$x y.gguf",
        "/srv/#a: b.gguf",
        "/srv/'\"\\.gguf",
        "/srv/ünï.gguf",
        "/srv/{a}[b].gguf",
    ],
)
def test_a_hostile_path_arrives_as_it_was_given(value: str) -> None:
    text = added("", Request("m", "llamacpp", value, args=(value, "- x", "*a", "null", "~")))

    runtime = loaded(text).config.runtimes["m"]
    assert runtime.weights == value
    assert runtime.args == [value, "- x", "*a", "null", "~"]


@pytest.mark.parametrize("model_id", ["m", "Org/Name:tag", "a b", "ü", "%n$x", "'", "x" * 200, "null", "1.0", "- a"])
def test_any_model_id_gets_a_runtime_whose_name_the_config_takes(model_id: str) -> None:
    try:
        text = added("", Request(model_id, "sim"))
    except Exception as error:  # noqa: BLE001 - the table also holds ids of which nothing is left
        assert "is no id for a model" in str(error)
        return
    assert loaded(text).config.models[0].id == model_id


@pytest.mark.parametrize(
    ("path", "model_id"),
    [
        ("/m/Qwen2.5-7B-Instruct-Q4_K_M.gguf", "qwen2.5-7b-instruct"),
        ("/m/SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct"),
        ("/m/big-IQ3_XXS-00001-of-00003.gguf", "big"),
        ("/m/model-f16.GGUF", "model"),
        ("/m/folder/", "folder"),
        ("/m/with space (1).gguf", "with-space-1"),
        ("package:x==1/y/Tiny.Q8_0.gguf#sha256=aa", "tiny"),
    ],
)
def test_the_id_comes_from_the_name_of_the_file(path: str, model_id: str) -> None:
    assert model_id_of(path) == model_id


def test_a_new_runtime_is_kept_warm_unless_it_is_to_be_on_demand() -> None:
    config = Config()

    assert plan_addition(Request("m", "sim"), config).runtime["keepWarm"] is True
    assert plan_addition(Request("m", "sim", keep_warm=False), config).runtime["keepWarm"] is False
