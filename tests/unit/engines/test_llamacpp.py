"""llama-server's command line, decided."""

from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import ConfigError
from engines.adapter import Build, EngineSpec, NodeFacts
from engines.registry import get_adapter

_SPEC = EngineSpec("r", "llamacpp", ("m", "n"), 8201, weights=Path("/w/x.gguf"), home=Path("/h"))
_BUILD = Build("llamacpp", "b", "1", Path("/e/bin/llama-server"))
_FACTS = NodeFacts(16, 1000)


def _command(spec: EngineSpec, facts: NodeFacts = _FACTS) -> str:
    return " ".join(get_adapter("llamacpp").build_command(spec, _BUILD, facts).argv)


def test_the_context_is_per_request_so_the_engine_gets_it_once_per_slot() -> None:
    command = _command(replace(_SPEC, context_length=2048, max_concurrency=4))

    assert "--parallel 4 --ctx-size 8192 --no-kv-unified" in command


def test_without_a_wished_context_each_slot_may_use_the_models_whole() -> None:
    command = _command(replace(_SPEC, max_concurrency=4))

    assert "--parallel 4 --kv-unified" in command
    assert "--ctx-size" not in command


def test_only_the_engines_own_name_is_given_because_it_sorts_several() -> None:
    assert "--alias m --api-key-file" in _command(_SPEC)


def test_a_runtime_without_devices_is_kept_off_every_gpu() -> None:
    command = get_adapter("llamacpp").build_command(_SPEC, _BUILD, _FACTS)

    assert "--device none" in " ".join(command.argv)
    assert dict(command.environment)["CUDA_VISIBLE_DEVICES"] == ""
    assert not command.allow_jit


def test_threads_spin_only_shortly_on_a_shared_cpu_unless_the_operator_wants_otherwise() -> None:
    adapter = get_adapter("llamacpp")
    wanted = replace(_SPEC, env=(("GOMP_SPINCOUNT", "9"), ("HOME", "/elsewhere")))

    assert dict(adapter.build_command(_SPEC, _BUILD, _FACTS).environment)["GOMP_SPINCOUNT"] == "1000"
    assert dict(adapter.build_command(wanted, _BUILD, _FACTS).environment)["GOMP_SPINCOUNT"] == "9"
    assert dict(adapter.build_command(wanted, _BUILD, _FACTS).environment)["HOME"] == "/h"


def test_devices_are_given_by_uuid_and_all_layers_go_there() -> None:
    command = get_adapter("llamacpp").build_command(replace(_SPEC, devices=("GPU-a", "GPU-b")), _BUILD, _FACTS)

    assert "--n-gpu-layers 999" in " ".join(command.argv)
    assert dict(command.environment)["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert command.allow_jit


@pytest.mark.parametrize(
    ("devices", "options", "cpus", "threads"),
    [((), {}, 16, 16), ((), {}, 0, 1), (("GPU-a",), {}, 64, 8), (("GPU-a",), {}, 2, 2), ((), {"threads": 3}, 16, 3)],
)
def test_threads_follow_the_machine_unless_somebody_says_otherwise(
    devices: tuple[str, ...], options: dict[str, int], cpus: int, threads: int
) -> None:
    command = _command(replace(_SPEC, devices=devices, options=options), NodeFacts(cpus, 1))

    assert f"--threads {threads} " in command


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("/w/a.gguf", "--lora-scaled /w/a.gguf:1 "),
        ("/w/a.gguf:0.5", "--lora-scaled /w/a.gguf:0.5 "),
        (" /w/a.gguf : 0.5 ,/w/b.gguf:-1", "--lora-scaled /w/a.gguf:0.5,/w/b.gguf:-1 "),
    ],
)
def test_adapters_are_applied_with_their_scales_and_may_be_read(text: str, flag: str) -> None:
    command = get_adapter("llamacpp").build_command(replace(_SPEC, options={"lora": text}), _BUILD, _FACTS)

    assert flag in " ".join(command.argv)
    assert "/w/a.gguf" in command.read_only_paths and "/w/a.gguf" in command.gguf_files


def test_all_parts_of_a_model_may_be_read() -> None:
    parts = [Path(f"/w/m-{number:05}-of-00003.gguf") for number in (1, 2, 3)]
    command = get_adapter("llamacpp").build_command(replace(_SPEC, weights=parts[0]), _BUILD, _FACTS)

    assert {str(part) for part in parts} <= set(command.read_only_paths)
    assert command.gguf_files == (str(parts[0]),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a.gguf", "no absolute path"),
        ("/w/../etc/a", "no absolute path"),
        ("/w/a,", "no absolute path"),
        ("/w/a:", "the scale '' of '/w/a' is no number"),
        ("/w/a:x", "is no number"),
        ("/w/a:nan", "is no number"),
        ("/w/a:1e999", "is no number"),
        ("/w/a:1_0", "is no number"),
        ("/w/a:1:2", "is no number"),
        ("/w/a,/w/a:2", "stands there twice"),
    ],
)
def test_adapters_that_make_no_sense_are_named(text: str, words: str) -> None:
    problems = get_adapter("llamacpp").check_spec(replace(_SPEC, options={"lora": text}))

    assert [words in problem for problem in problems] == [True], problems


def test_options_become_flags() -> None:
    command = _command(replace(_SPEC, options={"embeddings": True, "pooling": "mean", "mmproj": "/w/p.gguf"}))

    assert "--embeddings --pooling mean --mmproj /w/p.gguf" in command


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"weights": None}, "needs weights"),
        ({"weights": Path("x.gguf")}, "not an absolute path"),
        ({"weights": Path("/a\nb")}, "control character"),
        ({"served_models": ("a,b",)}, "comma"),
        ({"options": {"embeddings": True, "reranking": True}}, "exclude each other"),
        ({"options": {"threads": 0}}, "at least 1"),
        ({"options": {"threads": "4"}}, "whole number"),
        ({"options": {"threads": True}}, "whole number"),
        ({"options": {"pooling": "max"}}, "one of none"),
        ({"options": {"mmproj": "p.gguf"}}, "absolute path"),
        ({"options": {"thread": 1}}, "did you mean threads?"),
    ],
)
def test_each_mistake_is_named(change: dict[str, object], said: str) -> None:
    problems = get_adapter("llamacpp").check_spec(replace(_SPEC, **change))  # type: ignore[arg-type]  # a table of fields

    assert any(said in problem for problem in problems), problems


def test_without_a_build_the_error_says_how_to_get_one() -> None:
    with pytest.raises(ConfigError) as caught:
        get_adapter("llamacpp").build_command(_SPEC, None, _FACTS)

    assert caught.value.code == "engine_build_missing"
    assert "engine install" in caught.value.hint


def test_progress_is_read_from_recorded_metrics() -> None:
    text = (
        "# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.\n"
        "# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 37\n"
        "llamacpp:tokens_predicted_total 30\nllamacpp:predicted_tokens_seconds inf\n"
        "llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n"
    )

    progress = get_adapter("llamacpp").read_progress(text)

    assert (progress.running, progress.waiting, progress.tokens_total) == (1, 2, 67)
