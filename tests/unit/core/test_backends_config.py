"""Backends and targets in the config: what may stand there, and what is said of what may not."""

from pathlib import Path

import msgspec
import pytest

from cli.masking import mask
from core.config.backend_routes import KNOWN_ROUTES, OPENAI_ROUTES
from core.config.load import Loaded, parse_config
from core.config.problem import ConfigErrors
from core.config.service_url import ServiceUrl, parse_service_url
from gateway.table import FORM_PATHS, INFERENCE_PATHS, TRANSLATED

PATH = Path("config.yaml")
KEY = "sk-" + "provider-1234567890"


def load(text: str, **variables: str) -> Loaded:
    return parse_config(text.encode(), PATH, variables)


def problems(text: str, **variables: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        load(text, **variables)
    assert KEY not in caught.value.message
    return [str(problem) for problem in caught.value.problems]


def backend(fields: str) -> str:
    return f"backends: {{b: {{{fields}}}}}"


SERVED = """
backends: {b: {baseUrl: "https://x/v1"}, c: {baseUrl: "https://y/v1"}}
runtimes: {r: {engine: sim}}
models: [%s]
"""

BAD: list[tuple[str, str]] = [
    (backend(""), "backends.b.baseUrl: is missing"),
    (backend("baseUrl: 'ftp://x/v1'"), "backends.b.baseUrl: begins with neither https:// nor http://"),
    (backend("baseUrl: 'x/v1'"), "backends.b.baseUrl: begins with neither https:// nor http://"),
    (backend("baseUrl: 'https://u:p@x/v1'"), "backends.b.baseUrl: holds credentials"),
    (backend("baseUrl: 'https://x/v1?key=1'"), "backends.b.baseUrl: has a query or a fragment"),
    (backend("baseUrl: 'https://x/v1#'"), "backends.b.baseUrl: has a query or a fragment"),
    (backend("baseUrl: 'https://x'"), "backends.b.baseUrl: has no path"),
    (backend("baseUrl: 'https:///v1'"), "backends.b.baseUrl: has a host that is none"),
    (backend("baseUrl: 'https://x:99999/v1'"), "backends.b.baseUrl: has a port that is none"),
    (backend("baseUrl: 'https://x/v 1'"), "backends.b.baseUrl: has characters that no URL has"),
    (backend("baseUrl: 'https://x/../v1'"), "backends.b.baseUrl: has a path that is none"),
    (backend("baseUrl: 'https://x/v1', type: anthropic"), "backends.b.type: invalid enum value 'anthropic'"),
    (backend("baseUrl: 'https://x/v1', basUrl: 3"), "backends.b.basUrl: unknown key (did you mean baseUrl?)"),
    (backend("baseUrl: 'https://x/v1', maxConcurrency: 0"), "backends.b.maxConcurrency: expected int >= 1"),
    (backend("baseUrl: 'https://x/v1', caFile: ca.pem"), "backends.b.caFile: expected str matching"),
    (backend("baseUrl: 'http://10.0.0.1/v1', caFile: /ca.pem"), "backends.b.caFile: is only for https"),
    (backend("baseUrl: 'https://x/v1', timeoutMs: 1, firstByteTimeoutMs: 1"), "backends.b.timeoutMs: says the same as"),
    (
        backend("baseUrl: 'https://x/v1', routes: [/v1/chat/completion]"),
        "backends.b.routes[0]: there is no route /v1/chat/completion; did you mean /v1/chat/completions?",
    ),
    (backend("baseUrl: 'https://x/v1', apiKeyEnv: NOT_SET"), "backends.b.apiKeyEnv: the variable NOT_SET is not set"),
    (backend("baseUrl: 'https://x/v1', apiKeyEnv: EMPTY"), "backends.b.apiKeyEnv: the variable EMPTY is empty"),
    (backend(f"baseUrl: 'https://x/v1', apiKeyEnv: {KEY}"), "backends.b.apiKeyEnv: is not the name of a variable"),
    (backend(f"baseUrl: 'https://x/v1', apiKeyEnv: SET, apiKey: {KEY}"), "backends.b.apiKeyEnv: apiKey is set too"),
    (backend("baseUrl: 'https://x/v1', apiKey: '${NOT_SET}'"), "backends.b.apiKey: "),
    (backend(f"baseUrl: 'https://x/v1', apiKey: \"{KEY}\\r\\nx: y\""), "backends.b.apiKey: is no key"),
    (backend("baseUrl: 'https://x/v1', apiKeyEnv: BAD"), "backends.b.apiKeyEnv: is no key"),
    (backend(f"baseUrl: 'http://x/v1', apiKey: {KEY}"), "backends.b.baseUrl: the key would go to x unencrypted"),
    (backend("baseUrl: 'http://1.2.3.4/v1', apiKeyEnv: SET"), "backends.b.baseUrl: the key would go to 1.2.3.4"),
    ("backends: {'a b': {baseUrl: 'https://x/v1'}}", "backends.a b: is no backend id"),
    ("backends: {'a/b': {baseUrl: 'https://x/v1'}}", "backends.a/b: is no backend id"),
    (SERVED % "{id: m}", "models[0].runtime: is missing (or set backend, or targets)"),
    (SERVED % "{id: m, runtime: r, backend: b}", "models[0].runtime: is set beside backend"),
    (SERVED % "{id: m, backend: b, targets: [{runtime: r}]}", "models[0].backend: is set beside targets"),
    (SERVED % "{id: m, backend: bb}", "models[0].backend: there is no backend bb; did you mean b?"),
    (SERVED % "{id: m, targets: [{backend: d}]}", "models[0].targets[0].backend: there is no backend d"),
    (SERVED % "{id: m, targets: [{runtime: s}]}", "models[0].targets[0].runtime: there is no runtime s"),
    (SERVED % "{id: m, targets: [{weight: 2}]}", "models[0].targets[0]: has neither runtime nor backend"),
    (SERVED % "{id: m, targets: [{runtime: r, backend: b}]}", "models[0].targets[0]: runtime and backend are both set"),
    (SERVED % "{id: m, targets: [{backend: b, weight: 0}]}", "models[0].targets[0].weight: expected int >= 1"),
    (SERVED % "{id: m, targets: [{backend: b, weight: 101}]}", "models[0].targets[0].weight: expected int <= 100"),
    (
        SERVED % "{id: m, targets: [{backend: b}, {wieght: 1}]}",
        "models[0].targets[1].wieght: unknown key (did you mean",
    ),
    (
        SERVED % "{id: m, targets: [{backend: b}, {backend: b}]}",
        "models[0].targets[1].backend: b serves this model already (also models[0].targets[0]; use weight)",
    ),
    (
        SERVED % "{id: m, targets: [{backend: b, id: r}, {runtime: r}]}",
        "models[0].targets[1].id: r is the name of another target",
    ),
]


@pytest.mark.parametrize(("text", "expected"), BAD)
def test_what_is_wrong_is_named_with_its_place(text: str, expected: str) -> None:
    told = problems(text, SET=KEY, EMPTY="", BAD="two words")
    assert any(line.startswith(expected) for line in told), told


def test_all_that_is_wrong_with_backends_and_targets_is_told_at_once() -> None:
    text = """
    backends: {a: {baseUrl: 'https://x'}, b: {baseUrl: 'http://y/v1', apiKey: k}}
    models: [{id: m, backend: c}, {id: n, targets: [{backend: d}, {}]}]
    """
    places = [line.partition(": ")[0] for line in problems(text)]
    assert places == [
        "models[0].backend", "models[1].targets[0].backend", "models[1].targets[1]",
        "backends.a.baseUrl", "backends.b.baseUrl",
    ]  # fmt: skip


ALLOWED = [
    "baseUrl: 'https://api.example.org/v1', apiKeyEnv: SET",
    "baseUrl: 'https://api.example.org:8443/api/v1/', apiKeyEnv: SET",
    "baseUrl: 'http://127.0.0.1:9/v1', apiKeyEnv: SET",
    "baseUrl: 'http://localhost:9/v1', apiKeyEnv: SET",
    "baseUrl: 'http://[fd00::7]:9/v1', apiKeyEnv: SET",
    "baseUrl: 'http://192.168.1.2/v1', apiKeyEnv: SET",
    "baseUrl: 'http://100.64.3.4/v1', apiKeyEnv: SET",
    "baseUrl: 'http://api.example.org/v1'",
    "baseUrl: 'http://api.example.org/v1', apiKeyEnv: SET, allowPlainHttp: true",
    "baseUrl: 'https://x/v1beta/openai', routes: [/v1/chat/completions, /v1/responses]",
    "base_url: 'https://x/v1', max_concurrency: 3, stream_idle_timeout_ms: 5",
]


@pytest.mark.parametrize("fields", ALLOWED)
def test_this_is_a_backend(fields: str) -> None:
    assert "b" in load(backend(fields), SET=KEY).config.backends


def test_a_key_may_come_from_a_variable_and_is_shown_nowhere() -> None:
    loaded = load(backend("baseUrl: 'https://x/v1', apiKeyEnv: SET"), SET=KEY)
    assert loaded.config.backends["b"].api_key == KEY
    assert loaded.references["backends.b.apiKey"] == ("SET",)
    assert KEY not in repr(mask(msgspec.to_builtins(loaded.config), loaded.references))


def test_a_new_value_of_the_variable_is_a_change_of_the_config() -> None:
    text = backend("baseUrl: 'https://x/v1', apiKeyEnv: SET")
    assert load(text, SET="one").config != load(text, SET="two").config


@pytest.mark.parametrize(
    ("fields", "first_ms", "between_ms"),
    [
        ("", 600_000, 600_000),
        ("firstByteTimeoutMs: 0, betweenBytesTimeoutMs: 7", 0, 7),
        ("timeoutMs: 5, streamIdleTimeoutMs: 0", 5, 0),
    ],
)
def test_limits_of_time_have_two_names(fields: str, first_ms: int, between_ms: int) -> None:
    found = load(backend(f"baseUrl: 'https://x/v1'{', ' if fields else ''}{fields}")).config.backends["b"]
    assert (found.first_byte_limit_ms, found.between_bytes_limit_ms) == (first_ms, between_ms)


def test_targets_call_the_model_as_it_says_unless_they_say_so_themselves() -> None:
    text = SERVED % "{id: m, upstreamModel: up, targets: [{backend: b}, {runtime: r, upstreamModel: mine, weight: 4}]}"
    (model,) = load(text).config.models
    assert [(place.name, place.upstream_model, place.weight) for place in model.places()] == [
        ("b", "up", 1),
        ("r", "mine", 4),
    ]
    assert model.runtimes() == ["r"]


URLS: list[tuple[str, ServiceUrl]] = [
    ("https://api.example.org/v1", ServiceUrl(True, "api.example.org", 443, "/v1")),
    ("http://10.0.0.7:8000/v1/", ServiceUrl(False, "10.0.0.7", 8000, "/v1")),
    ("https://[fd00::7]/a/b/v1", ServiceUrl(True, "fd00::7", 443, "/a/b/v1")),
    ("http://API.Example.org/v1", ServiceUrl(False, "api.example.org", 80, "/v1")),
]


@pytest.mark.parametrize(("text", "url"), URLS)
def test_a_base_url_is_taken_apart(text: str, url: ServiceUrl) -> None:
    assert parse_service_url(text) == url


def test_the_gateway_has_every_route_that_a_backend_may_have() -> None:
    ours = {*INFERENCE_PATHS, *FORM_PATHS, *TRANSLATED}
    assert set(KNOWN_ROUTES) <= ours
    assert set(OPENAI_ROUTES) <= set(KNOWN_ROUTES)
