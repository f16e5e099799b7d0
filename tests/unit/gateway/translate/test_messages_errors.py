"""Errors in Anthropic's words."""

import json

import pytest

from gateway.errors import ApiError, unauthorized
from gateway.translate.messages_errors import error_type, translate_refusal, write_api_error, write_error_event


@pytest.mark.parametrize(
    ("status", "type_"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (415, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
    ],
)
def test_every_status_has_its_word(status: int, type_: str) -> None:
    assert error_type(status) == type_


def test_our_own_errors_keep_their_code_and_model() -> None:
    error = json.loads(write_api_error(ApiError(503, "model_loading", "It loads.", model="m\ud800", state="warming")))
    assert error == {
        "type": "error",
        "error": {
            "type": "overloaded_error",
            "message": "It loads.",
            "code": "model_loading",
            "model": "m?",
            "state": "warming",
        },
    }


def test_failures_of_authentication_are_the_same_bytes() -> None:
    assert write_api_error(unauthorized()) == write_api_error(unauthorized())
    assert b"authentication_error" in write_api_error(unauthorized())


def test_an_event_is_named_and_typed_error() -> None:
    name, data, *_ = write_error_event(502, "It broke off.", code="upstream_broken").split(b"\n")
    assert name == b"event: error" and json.loads(data[6:])["error"]["code"] == "upstream_broken"


OWN = b'{"type":"error","error":{"type":"invalid_request_error","message":"too long"},"request_id":"r"}'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"code":400,"message":"too long","type":"x"}}', "too long"),
        (b'{"error":"too long"}', "too long"),
        (b'{"object":"error","message":"too long","code":400}', "too long"),
        (b'{"detail":[{"loc":["body"]}]}', '[{"loc":["body"]}]'),
        (OWN, "too long"),
        (b"<html>", "The engine refused the request with status 400."),
        (b"", "The engine refused the request with status 400."),
        (b"[" * 100_000, "The engine refused the request with status 400."),
        (b'{"error":{"message":7}}', "The engine refused the request with status 400."),
        (b'{"error":{}}', "The engine refused the request with status 400."),
    ],
    ids=lambda value: ascii(value[:40]),
)
def test_what_an_engine_says_is_said_again_in_anthropics_envelope(body: bytes, message: str) -> None:
    told = json.loads(translate_refusal(400, body))
    assert told["type"] == "error" and told["error"]["type"] == "invalid_request_error"
    assert told["error"]["message"] == message


def test_an_engine_that_speaks_anthropics_words_is_quoted() -> None:
    assert translate_refusal(400, OWN) is OWN
