"""What a client hears when nothing is ready, and when a start is asked for."""

import json

import pytest

from core.api import RouteTarget
from core.runtime import RuntimeState
from gateway.readiness import explain_unready
from gateway.table import build_lookup
from tests.unit.gateway.tables import model, table, target, unready

CHAT = "/v1/chat/completions"

ROWS = [
    # (targets, status, code, retry-after?, runtime to start)
    ([unready("starting")], 503, "model_loading", True, ""),
    ([unready("warming")], 503, "model_loading", True, ""),
    ([unready("queued")], 503, "model_loading", True, ""),
    ([unready("stopped")], 503, "model_loading", True, "t1"),
    ([unready("stopped", hold=True)], 503, "runtime_stopped", False, ""),
    ([unready("stopping", hold=True)], 503, "runtime_stopped", False, ""),
    ([unready("draining", hold=True)], 503, "runtime_stopped", False, ""),
    ([unready("starting", hold=True)], 503, "model_loading", True, ""),
    ([unready("stopping")], 503, "runtime_not_ready", True, ""),
    ([unready("draining")], 503, "runtime_not_ready", True, ""),
    ([unready("running")], 503, "runtime_not_ready", True, ""),
    ([unready("failed")], 503, "runtime_failed", False, ""),
    ([unready("")], 503, "runtime_not_ready", True, ""),
    ([unready("from-the-future")], 503, "runtime_not_ready", True, ""),
    ([], 503, "no_target", False, ""),
    ([unready("running", routes=["/v1/embeddings"])], 400, "wrong_model_kind", False, ""),
    ([target("a", adapter="x")], 503, "adapter_busy", True, ""),
    ([unready("running", adapter="x")], 503, "runtime_not_ready", True, ""),
    ([unready("stopped", adapter="x")], 503, "model_loading", True, "t1"),
    # The most hopeful of several speaks.
    ([unready("failed", "a"), unready("starting", "b")], 503, "model_loading", True, ""),
    ([unready("failed", "a"), unready("stopped", "b")], 503, "model_loading", True, "b"),
    ([unready("stopped", "a", hold=True), unready("failed", "b")], 503, "runtime_failed", False, ""),
    ([unready("stopped", "a"), unready("starting", "b")], 503, "model_loading", True, ""),
    ([unready("stopped", "a", hold=True), unready("stopped", "b")], 503, "model_loading", True, "b"),
    ([unready("stopped", "a", routes=["/x"]), unready("failed", "b")], 503, "runtime_failed", False, ""),
    ([unready("odd", "a"), unready("failed", "b")], 503, "runtime_not_ready", True, ""),
]


@pytest.mark.parametrize(("targets", "status", "code", "again", "start"), ROWS)
def test_the_answer_follows_the_state(
    targets: list[RouteTarget], status: int, code: str, again: bool, start: str
) -> None:
    entry = build_lookup(table(model("m", *targets))).models["m"]
    answer = explain_unready(entry, CHAT, "m")
    assert (answer.error.http_status, answer.error.code) == (status, code)
    asked = answer.target.runtime if answer.target is not None and answer.starts else ""
    assert (answer.error.retry_after_s > 0, asked) == (again, start)


@pytest.mark.parametrize("state", list(RuntimeState))
def test_every_state_of_a_runtime_has_an_answer(state: RuntimeState) -> None:
    entry = build_lookup(table(model("m", unready(state, reason="because")))).models["m"]
    answer = explain_unready(entry, CHAT, "m")
    body = json.loads(answer.error.body())["error"]
    assert (body["model"], body["state"], body["reason"]) == ("m", state, "because")
    assert body["type"] == "service_unavailable"


def test_a_refusal_names_the_id_that_the_client_used() -> None:
    entry = build_lookup(table(model("m", unready("failed"), aliases=("gpt-4",)))).models["gpt-4"]
    assert explain_unready(entry, CHAT, "gpt-4").error.model == "gpt-4"


@pytest.mark.parametrize(
    ("one", "awaited"),
    [
        (target(), False),
        (target(adapter="x"), True),
        (target(adapter="x", adapter_loaded=True), False),
        (unready("starting", adapter="x"), False),
        (unready("stopped", adapter="x", hold=True), False),
    ],
)
def test_only_an_engine_that_serves_is_asked_for_an_adapter(one: RouteTarget, awaited: bool) -> None:
    entry = build_lookup(table(model("m", one))).models["m"]
    assert explain_unready(entry, CHAT, "m").awaits_adapter is awaited
    assert bool(entry.ready[CHAT]) is one.is_usable
