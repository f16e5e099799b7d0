"""Which LoRA adapter makes room for another, what the gateway is told of them, and what restarts an engine."""

from pathlib import Path

import pytest

from core.activity import FORGET_AFTER_S, ActivityReport, AdapterActivity, RuntimeActivity
from core.config.load import parse_config
from core.config.problem import ConfigErrors
from core.config.schema import Config
from core.runtime import RuntimeState
from daemon.activity import Activity, AdapterUse
from daemon.local_api.verification import sources_by_name
from daemon.local_api.weights import used_paths
from daemon.routes import RuntimeView, build_route_table
from daemon.runtimes.adapters import PATIENCE_S, STAY_S, Held, Load, Step, Unload, Wait, next_step, pause_s
from daemon.runtimes.spec import adapter_slots, declared_adapters, served_models, spec_hash
from engines.judge import judge_runtimes
from engines.registry import get_adapter

LONG = 1000.0
FRESH = STAY_S / 2


def idle(name: str, idle_s: float, **changes: object) -> Held:
    return Held(name, LONG, 0, idle_s, **changes)  # type: ignore[arg-type]


def busy(name: str, held_s: float = LONG) -> Held:
    return Held(name, held_s, 1, 5.0)


STEPS: list[tuple[str, list[Held], int, float, Step]] = [
    ("nothing is there", [], 1, 0, Load()),
    ("there is room", [busy("a")], 2, 0, Load()),
    ("the only idle one goes", [busy("a"), idle("b", 1)], 2, 0, Unload("b")),
    ("the least recently used one goes", [idle("a", 3), idle("b", 7), idle("c", 5)], 3, 0, Unload("b")),
    ("one that was never used counts from when it came", [idle("a", 50), Held("b", 60.0)], 2, 0, Unload("b")),
    ("one used before it came this time, too", [idle("a", 50), Held("b", 60.0, 0, 70.0)], 2, 0, Unload("b")),
    ("one that no model is goes first", [idle("a", 50), idle("b", 2, is_declared=False)], 2, 0, Unload("b")),
    ("also when it has just come", [idle("a", 50), Held("b", 0.0, is_declared=False)], 2, 0, Unload("b")),
    ("but not while it is used", [busy("a"), Held("b", LONG, 2, None, is_declared=False)], 2, 0, Wait()),
    ("whoever wanted a new one is on the way", [busy("a"), Held("b", FRESH)], 2, 0, Wait()),
    ("whoever used a new one has had it", [busy("a"), Held("b", FRESH, 0, FRESH / 2)], 2, 0, Unload("b")),
    ("all are used", [busy("a"), busy("b")], 2, PATIENCE_S / 2, Wait()),
    ("all are used for long", [busy("a", 9), busy("b", 99)], 2, PATIENCE_S, Unload("b", drains=True)),
    ("all are used and new", [busy("a", 1), busy("b", 1)], 2, LONG, Wait()),
    ("there are more than room for", [busy("a"), idle("b", 1)], 1, 0, Unload("b")),
]


@pytest.mark.parametrize(("what", "held", "slots", "waited_s", "step"), STEPS, ids=[row[0] for row in STEPS])
def test_what_makes_room(what: str, held: list[Held], slots: int, waited_s: float, step: Step) -> None:
    assert next_step(held, slots, waited_s) == step
    assert next_step(held[::-1], slots, waited_s) == step, "the order is no reason"


def test_pauses_grow_to_five_minutes() -> None:
    assert [pause_s(times) for times in (1, 2, 3, 7, 8, 500)] == [5, 10, 20, 300, 300, 300]


TEXT = """
models:
  - {id: base, runtime: r}
  - {id: sql, runtime: r, adapter: /srv/sql}
  - {id: law, runtime: r, adapter: 'hf:a/b', upstreamModel: legal}
runtimes: {r: {engine: vllm, weights: /srv/m, maxLoadedAdapters: 3}, s: {engine: ENGINE}}
"""


def config(text: str = TEXT, engine: str = "sim") -> Config:
    return parse_config(text.replace("ENGINE", engine).encode(), Path("c"), {}).config


def test_an_adapter_is_no_name_of_the_engines_own_model() -> None:
    assert served_models(config(), "r") == ("base",)
    assert declared_adapters(config(), "r") == {"sql": "/srv/sql", "legal": "hf:a/b"}


@pytest.mark.parametrize(
    ("before", "after", "restarts"),
    [
        ("maxLoadedAdapters: 3", "maxLoadedAdapters: 4", True),
        ("  - {id: law, runtime: r, adapter: 'hf:a/b', upstreamModel: legal}\n", "", False),
        ("/srv/sql", "/srv/other", False),
        ("adapter: /srv/sql", "kind: chat", True),
    ],
)
def test_adapters_come_and_go_without_a_restart_but_not_the_room_for_them(
    before: str, after: str, restarts: bool
) -> None:
    changed = config(TEXT.replace(before, after))
    assert (spec_hash(config(), "r") != spec_hash(changed, "r")) is restarts


def test_room_is_kept_where_there_are_adapters_or_will_be() -> None:
    none = "runtimes: {r: {engine: vllm, maxLoadedAdapters: 3OPTIONS}}"
    assert adapter_slots(config(), "r") == 3
    assert adapter_slots(config(none.replace("OPTIONS", "")), "r") == 0
    assert adapter_slots(config(none.replace("OPTIONS", ", options: {runtimeLora: true}")), "r") == 3
    other = config(none.replace("OPTIONS", "").replace("3", "9"))
    assert spec_hash(other, "r") == spec_hash(config(none.replace("OPTIONS", "")), "r"), "it is of no consequence"


@pytest.mark.parametrize(("engine", "asked"), [("vllm", ["", "", "legal"]), ("sglang", ["", "base:sql", "base:legal"])])
def test_the_table_says_what_is_loaded_and_what_the_engine_calls_it(engine: str, asked: list[str]) -> None:
    view = RuntimeView(RuntimeState.RUNNING, "", 8201, "", get_adapter(engine), adapters=frozenset({"legal"}))
    table = build_route_table(config(), {"r": view}, node="n", epoch="e", version=1)
    targets = [model.targets[0] for model in table.models]
    assert [model.parent for model in table.models] == ["", "base", "base"]
    assert [target.id for target in targets] == ["n/r"] * 3, "they share the slots of their runtime"
    assert [target.adapter for target in targets] == ["", "sql", "legal"]
    assert [target.is_usable for target in targets] == [True, False, True]
    assert [target.upstream_model for target in targets] == asked


def test_no_adapter_is_usable_while_its_runtime_is_not() -> None:
    view = RuntimeView(RuntimeState.STARTING, "", 8201, "", get_adapter("vllm"), adapters=frozenset({"legal"}))
    table = build_route_table(config(), {"r": view}, node="n", epoch="e", version=1)
    assert not any(model.targets[0].is_usable for model in table.models)


JUDGED = [
    ("adapter: /srv/sql", "adapter: sql", "models[1].adapter", "'sql'"),
    ("adapter: /srv/sql", "adapter: 'hf:a/b:x.safetensors'", "models[1].adapter", "is one file; vllm takes a folder"),
    ("adapter: /srv/sql", "adapter: 'package:a==1/x.bin'", "models[1].adapter", "is one file; vllm takes a folder"),
    ("{id: sql, runtime: r", "{id: sql, runtime: s", "models[1].adapter", "sim loads no adapters while it serves"),
    ("maxLoadedAdapters: 3", "options: {lora: 'sql=/srv/x'}", "models[1].id", "loaded at the start already"),
    ("engine: vllm", "engine: llamacpp", "models[1].adapter", "llamacpp loads no adapters while it serves"),
    ("{id: sql, runtime: r", "{id: 'a:b', runtime: t", "models[1].id", "a name with a colon"),
]


@pytest.mark.parametrize(("before", "after", "path", "words"), JUDGED)
def test_a_misplaced_adapter_is_named(before: str, after: str, path: str, words: str) -> None:
    text = TEXT.replace(before, after).replace("s: {engine", "t: {engine: sglang}, s: {engine")
    problems = judge_runtimes(config(text))
    assert [problem.path for problem in problems][:1] == [path]
    assert words in problems[0].message


def test_adapters_that_an_engine_can_load_are_no_problem() -> None:
    assert judge_runtimes(config()) == []


@pytest.mark.parametrize(
    ("adapter", "path", "hint"),
    [
        ("{id: law, runtime: r, adapter: /srv/law, upstreamModel: sql}", "models[1].upstreamModel", "/srv/sql"),
        ("{id: law, runtime: r, upstreamModel: sql}", "models[1].upstreamModel", "/srv/sql"),
    ],
)
def test_one_name_of_an_engine_is_one_thing(adapter: str, path: str, hint: str) -> None:
    text = f"models: [{{id: sql, runtime: r, adapter: /srv/sql}}, {adapter}]\nruntimes: {{r: {{engine: vllm}}}}"
    with pytest.raises(ConfigErrors) as caught:
        config(text)
    assert [(problem.path, hint in problem.hint) for problem in caught.value.problems] == [(path, True)]


def test_weights_of_adapters_are_used_and_are_found_by_their_models_name(tmp_path: Path) -> None:
    (sql := tmp_path / "sql").mkdir()
    read = config(TEXT.replace("/srv/sql", str(sql)).replace("/srv/m", str(tmp_path)))
    assert used_paths(read, tmp_path)["r"] == [tmp_path, sql]
    assert sources_by_name(read) == {"base": str(tmp_path), "sql": str(sql), "law": "hf:a/b", "r": str(tmp_path)}


def report(source: str, **adapters: AdapterActivity) -> ActivityReport:
    return ActivityReport(source=source, epoch="e", version=1, runtimes={"r": RuntimeActivity(adapters=adapters)})


def test_workers_add_up() -> None:
    activity = Activity()
    activity.take(report("a", sql=AdapterActivity(in_use=2)), 0.0)
    activity.take(report("b", sql=AdapterActivity(in_use=1, idle_s=3.0), law=AdapterActivity(idle_s=0.0)), 4.0)
    assert activity.adapter_use("r", "sql", 5.0) == AdapterUse(3, 4.0)
    assert activity.adapter_use("r", "law", 5.0) == AdapterUse(0, 1.0)
    assert activity.adapter_use("r", "none", 5.0) == activity.adapter_use("s", "sql", 5.0) == AdapterUse()


def test_a_dead_workers_requests_are_gone_and_when_they_ended_is_not() -> None:
    activity = Activity()
    activity.take(report("a", sql=AdapterActivity(in_use=2, idle_s=1.0)), 1.0)
    assert activity.adapter_use("r", "sql", 1.0 + FORGET_AFTER_S + 1) == AdapterUse(0, FORGET_AFTER_S + 2)
