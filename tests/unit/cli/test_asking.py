"""The line with which a person asks a model for the first time."""

import json
import shlex

import pytest

from cli.asking import curl_line, kind_of, needs_key
from core.config.schema import Config, Model, Security, Server


@pytest.mark.parametrize("model", ["m", "org/m:tag", "it's", 'say "x"', "a\\b", "$HOME `id`"])
def test_the_curl_line_survives_a_shell_whatever_the_model_is_called(model: str) -> None:
    words = shlex.split(curl_line("http://h:1", model, with_key=True))

    assert words[:2] == ["curl", "http://h:1/v1/chat/completions"]
    assert "Authorization: Bearer $LLMGW_KEY" in words
    assert json.loads(words[-1])["model"] == model


@pytest.mark.parametrize(
    ("kind", "path", "field"),
    [
        ("chat", "/v1/chat/completions", "messages"),
        ("embedding", "/v1/embeddings", "input"),
        ("image", "/v1/models", ""),
    ],
)
def test_the_curl_line_asks_for_what_the_model_is_for(kind: str, path: str, field: str) -> None:
    words = shlex.split(curl_line("http://h:1", "m", with_key=False, kind=kind))

    assert words[1] == f"http://h:1{path}"
    assert not field or field in json.loads(words[-1])


@pytest.mark.parametrize(
    ("host", "may_be_missing", "needed"),
    [("127.0.0.1", True, False), ("127.0.0.1", False, True), ("0.0.0.0", True, True), ("10.0.0.1", False, True)],
)
def test_a_key_is_needed_off_loopback_whatever_the_config_allows(host: str, may_be_missing: bool, needed: bool) -> None:
    config = Config(server=Server(host=host), security=Security(allow_missing_auth=may_be_missing))

    assert needs_key(config) is needed


def test_what_a_model_is_for() -> None:
    config = Config(models=[Model(id="e", runtime="r", kind="embedding")])

    assert (kind_of(config, "e"), kind_of(config, "unknown")) == ("embedding", "chat")
