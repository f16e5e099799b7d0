"""The contract of every engine adapter. A new adapter is in `registry`, and so it is here."""

from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import ConfigError, NotFoundError
from engines.adapter import KEY_FILE, RUN_AS, Build, EngineAdapter, EngineSpec, Health, NodeFacts, Rendezvous
from engines.policy import check_args
from engines.registry import get_adapter, names

FACTS = NodeFacts(cpu_count=6, memory_total_mib=64_000)
BUILD = Build("any", "b", "1", Path("/opt/engine/bin/server"), (("BUILD_SAYS", "x"),))

OWN_COMMAND = ("command", "container")
HOSTILE_IDS = ["", " x", "x ", "a\nb", "a\x00b", "a\x1bb", "x" * 201, "\ud800"]
CANNOT_SAY = {"sglang": {"org/model:tag"}}
"""Ids that an engine has no way to take; its adapter must say so."""
STRANGE_IDS = ["a b", "%n", "$HOME", "${HOME}", "'", '"', "\\", "-x", "--host", "ü", "org/model:tag", "a;b", "`id`"]


IMAGE = "registry.example:5000/team/engine@sha256:" + "0" * 64


def a_spec(name: str) -> EngineSpec:
    """A spec that every adapter takes; what only one of them needs does not disturb the others."""
    return EngineSpec(
        runtime_id="r",
        engine=name,
        served_models=("one", "two"),
        port=8201,
        weights=Path("/srv/weights/x.gguf"),
        context_length=2048,
        max_concurrency=3,
        env=(("OMP_NUM_THREADS", "2"),),
        command=("/usr/bin/server", "--port", "{port}", "--key-file={keyFile}") if name in OWN_COMMAND else (),
        home=Path("/var/lib/llmgw/homes/r"),
        options={"image": IMAGE} if name == "container" else {},
    )


@pytest.fixture(params=names())
def adapter(request: pytest.FixtureRequest) -> EngineAdapter:
    return get_adapter(str(request.param))


def test_the_registry_names_each_adapter_as_it_names_itself(adapter: EngineAdapter) -> None:
    assert get_adapter(adapter.name) is adapter


def test_an_unknown_engine_is_not_found_and_the_nearest_is_named() -> None:
    with pytest.raises(NotFoundError) as caught:
        get_adapter("llamacp")

    assert "llamacpp" in caught.value.hint


def test_a_good_spec_has_no_problems_and_makes_an_absolute_command(adapter: EngineAdapter) -> None:
    spec = a_spec(adapter.name)

    command = adapter.build_command(spec, BUILD, FACTS)

    assert adapter.check_spec(spec) == []
    assert command.argv[0].startswith("/")
    assert any("8201" in word for word in command.argv)
    assert ("OMP_NUM_THREADS", "2") in command.environment
    assert dict(command.environment)["HOME"] == str(spec.home)


def test_nothing_is_decided_by_anything_but_the_arguments(adapter: EngineAdapter) -> None:
    spec = a_spec(adapter.name)

    assert adapter.build_command(spec, BUILD, FACTS) == adapter.build_command(spec, BUILD, FACTS)


def test_the_key_is_handed_over_as_a_file_and_only_its_placeholder_holds_a_nul(adapter: EngineAdapter) -> None:
    command = adapter.build_command(a_spec(adapter.name), BUILD, FACTS)
    handed = any(KEY_FILE in word for word in command.argv)
    rest = [word.replace(KEY_FILE, "") for word in command.argv]

    assert handed == (adapter.demands_key or adapter.name in OWN_COMMAND)
    rest = [word.replace(RUN_AS, "") for word in rest]
    assert not any("\x00" in word for word in (*rest, *(value for _, value in command.environment)))
    assert not any(word.startswith("--api-key") and word != "--api-key-file" for word in command.argv)


@pytest.mark.parametrize("model", HOSTILE_IDS, ids=ascii)
def test_an_id_that_no_command_line_can_carry_is_a_problem_and_an_error(adapter: EngineAdapter, model: str) -> None:
    spec = replace(a_spec(adapter.name), served_models=("fine", model))

    assert adapter.check_spec(spec)
    with pytest.raises(ConfigError) as caught:
        adapter.build_command(spec, BUILD, FACTS)
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("model", STRANGE_IDS)
def test_a_strange_but_honest_id_is_one_word_or_part_of_one(adapter: EngineAdapter, model: str) -> None:
    plain = adapter.build_command(replace(a_spec(adapter.name), served_models=("plain",)), BUILD, FACTS)
    spec = replace(a_spec(adapter.name), served_models=(model,))
    if model in CANNOT_SAY.get(adapter.name, ()):
        assert "upstreamModel" in " ".join(adapter.check_spec(spec))
        return

    command = adapter.build_command(spec, BUILD, FACTS)

    assert len(command.argv) == len(plain.argv)


@pytest.mark.parametrize(
    "change",
    [
        {"served_models": ()}, {"port": 0}, {"port": 70000}, {"port": -1}, {"context_length": -1},
        {"max_concurrency": 0}, {"options": {"nosuchoption": 1}}, {"args": ("a\x00b",)}, {"args": ("--x\n",)},
        {"command": ("relative",), "health_url": "nothing", "weights": None, "options": {"tokens": True}},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_wrong_is_said_as_sentences_before_anything_starts(
    adapter: EngineAdapter, change: dict[str, object]
) -> None:
    problems = adapter.check_spec(replace(a_spec(adapter.name), **change))  # type: ignore[arg-type]  # a table of fields

    assert problems
    assert all(problem.isprintable() and " " in problem for problem in problems)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_a_member_of_a_group_is_told_its_rank_or_the_engine_cannot_be_one(adapter: EngineAdapter, rank: int) -> None:
    spec = replace(a_spec(adapter.name), rendezvous=Rendezvous(rank=rank, size=4, address="10.0.0.1", port=29500))

    if not adapter.multi_node:
        assert "several nodes" in " ".join(adapter.check_spec(spec))
        return

    argv = adapter.build_command(spec, BUILD, FACTS).argv
    assert argv[argv.index("--nnodes") + 1] == "4"
    assert argv[argv.index("--node-rank") + 1] == str(rank)
    assert any("10.0.0.1" in word for word in argv) and any("29500" in word for word in argv)
    assert KEY_FILE in argv


@pytest.mark.parametrize(
    "meeting",
    [
        Rendezvous(4, 4, "10.0.0.1", 29500), Rendezvous(-1, 4, "10.0.0.1", 29500), Rendezvous(0, 0, "10.0.0.1", 29500),
        Rendezvous(0, 2, "10.0.0.1", 0), Rendezvous(0, 2, "--help", 29500), Rendezvous(0, 2, "", 29500),
        Rendezvous(0, 2, "10.0.0.1", 29500, own_address="a b"),
    ],
    ids=str,
)  # fmt: skip
def test_a_meeting_that_cannot_be_is_a_problem(adapter: EngineAdapter, meeting: Rendezvous) -> None:
    assert adapter.check_spec(replace(a_spec(adapter.name), rendezvous=meeting))


def test_cards_reach_the_engine_as_they_are_named(adapter: EngineAdapter) -> None:
    """`command` is left alone: what it does with cards is the operator's own affair."""
    spec = replace(a_spec(adapter.name), devices=("GPU-1", "MIG-2"))

    environment = dict(adapter.build_command(spec, BUILD, FACTS).environment)

    if adapter.needs_build:
        assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-1,MIG-2"


def test_a_runtime_without_cards_sees_none(adapter: EngineAdapter) -> None:
    environment = dict(adapter.build_command(a_spec(adapter.name), BUILD, FACTS).environment)

    if adapter.needs_build:
        assert environment["CUDA_VISIBLE_DEVICES"] == ""


def test_arguments_of_the_operator_come_last(adapter: EngineAdapter) -> None:
    command = adapter.build_command(replace(a_spec(adapter.name), args=("--extra", "1")), BUILD, FACTS)

    assert command.argv[-2:] == ("--extra", "1")


def test_what_llmgw_sets_itself_may_not_be_added(adapter: EngineAdapter) -> None:
    command = adapter.build_command(a_spec(adapter.name), BUILD, FACTS)
    valued = [word.partition("=")[0] for word in command.argv if word in ("--host", "--port", "--model", "--alias")]

    for flag in valued if adapter.name not in OWN_COMMAND else []:
        assert check_args(adapter.name, [flag]), flag


def test_health_says_ready_loading_and_failed(adapter: EngineAdapter) -> None:
    """vLLM listens when it is ready and not before: its 503 says that its engine process died."""
    unavailable = Health.FAILED if adapter.name == "vllm" else Health.LOADING
    assert adapter.read_health(200, b"{}") is Health.READY
    assert adapter.read_health(503, b'{"error":{"message":"Loading model"}}') is unavailable
    assert adapter.read_health(401, b"") is Health.FAILED
    assert adapter.health_probe(a_spec(adapter.name)).path.startswith(("/", "http"))


@pytest.mark.parametrize("text", ["", "\x00\xff", "# HELP\n", "a{", "a}b 1", "x NaN\ny inf\n", "a " * 10_000])
def test_hostile_metrics_are_no_progress_and_no_error(adapter: EngineAdapter, text: str) -> None:
    progress = adapter.read_progress(text)

    assert (progress.running, progress.waiting, progress.tokens_total) == (None, None, None)


def test_routes_are_paths(adapter: EngineAdapter) -> None:
    assert adapter.routes
    assert all(route.startswith("/") for route in adapter.routes)
