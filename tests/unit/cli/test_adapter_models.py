"""What adding a LoRA adapter as a model does to the config, and when it refuses."""

from pathlib import Path

import pytest

from cli.adapter_models import BaseUnknown, find_base, plan_adapter_model, restarts
from cli.addition import ModelExists
from core.config.load import parse_config
from core.config.schema import Config
from core.errors import UsageError

TEXT = """
models:
  - {id: qwen, runtime: big}
  - {id: sql, runtime: big, adapter: /srv/sql}
  - {id: small, runtime: cpu}
  - {id: plain, runtime: bare}
aliases: {old: qwen}
runtimes:
  {big: {engine: vllm}, cpu: {engine: llamacpp}, bare: {engine: vllm},
   kept: {engine: vllm, options: {runtimeLora: true}}}
"""


def config() -> Config:
    return parse_config(TEXT.encode(), Path("c"), {}).config


@pytest.mark.parametrize(("base", "runtime"), [("qwen", "big"), ("big", "big"), ("kept", "kept")])
def test_a_base_is_a_model_or_a_runtime(base: str, runtime: str) -> None:
    assert find_base(base, config()) == runtime


@pytest.mark.parametrize("base", ["nobody", "sql", "", "old"])
def test_what_is_neither_is_refused(base: str) -> None:
    with pytest.raises(BaseUnknown):
        find_base(base, config())


def test_an_engine_that_can_load_none_is_named() -> None:
    with pytest.raises(UsageError, match="llamacpp loads no adapters") as caught:
        find_base("small", config())
    assert "vllm" in caught.value.hint


def test_it_is_one_entry_of_models() -> None:
    addition = plan_adapter_model("law", "hf:a/b", "big", config())
    assert addition.model == {"id": "law", "runtime": "big", "adapter": "hf:a/b"}
    assert (dict(addition.runtime), addition.changes) == ({}, True)


def test_the_same_again_changes_nothing() -> None:
    assert not plan_adapter_model("sql", "/srv/sql", "big", config()).changes


@pytest.mark.parametrize(
    ("model_id", "source", "runtime"),
    [("sql", "/srv/other", "big"), ("sql", "/srv/sql", "bare"), ("qwen", "/srv/sql", "big"), ("old", "/srv/x", "big")],
)
def test_a_name_that_is_taken_is_refused(model_id: str, source: str, runtime: str) -> None:
    with pytest.raises(ModelExists):
        plan_adapter_model(model_id, source, runtime, config())


@pytest.mark.parametrize(("runtime", "is_first"), [("big", False), ("bare", True), ("kept", False)])
def test_only_the_first_one_makes_an_engine_start_anew(runtime: str, is_first: bool) -> None:
    assert restarts(runtime, config()) is is_first
