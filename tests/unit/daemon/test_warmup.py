"""Which first request an engine is asked."""

import msgspec
import pytest

from core.config.schema import Model, Runtime, Warmup
from daemon.runtimes.warmup import plan_warmup

CHAT = Model(id="m", runtime="r")
EMBEDDING = Model(id="e", runtime="r", kind="embedding")
ALL = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings"})


@pytest.mark.parametrize(
    ("warmup", "models", "routes", "path"),
    [
        (False, [CHAT], ALL, None),
        (True, [CHAT], ALL, "/v1/chat/completions"),
        (True, [], ALL, "/v1/chat/completions"),
        (True, [CHAT], frozenset({"/v1/completions"}), "/v1/completions"),
        (True, [EMBEDDING], ALL, "/v1/embeddings"),
        (True, [EMBEDDING], frozenset({"/v1/completions"}), "/v1/completions"),
        (True, [CHAT], frozenset({"/prompt"}), None),
        (Warmup(path="/prompt"), [CHAT], frozenset({"/prompt"}), "/prompt"),
    ],
)
def test_the_route(warmup: bool | Warmup, models: list[Model], routes: frozenset[str], path: str | None) -> None:
    call = plan_warmup(Runtime(warmup=warmup), models, routes, "m")
    assert (call.path if call else None) == path


def test_one_token_is_enough() -> None:
    call = plan_warmup(Runtime(warmup=True), [CHAT], ALL, "the model")
    assert call is not None
    body = msgspec.json.decode(call.body)
    assert (body["model"], body["max_tokens"]) == ("the model", 1)


def test_a_body_of_the_operators_own_is_sent_as_it_is_with_the_model_where_it_names_none() -> None:
    own = plan_warmup(Runtime(warmup=Warmup(path="/x", body={"a": {"b": [1]}})), [], ALL, "m")
    named = plan_warmup(Runtime(warmup=Warmup(path="/x", body={"model": "other"})), [], ALL, "m")
    assert own is not None and msgspec.json.decode(own.body) == {"model": "m", "a": {"b": [1]}}
    assert named is not None and msgspec.json.decode(named.body) == {"model": "other"}
