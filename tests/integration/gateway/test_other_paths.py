"""The routes that are relayed to engines that serve them, and refused for models whose engines do not."""

import json
from pathlib import Path

import pytest

from gateway.table import FORM_PATHS, INFERENCE_PATHS
from tests.fakes.upstream import FakeUpstream
from tests.integration.gateway.harness import gateway, raw_request, target_of
from tests.unit.gateway.tables import model, table

FORM = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n'


@pytest.mark.parametrize("lane", ["fast lane", "resource"])
@pytest.mark.parametrize("path", INFERENCE_PATHS)
async def test_an_engine_gets_the_request_as_it_is_on_every_path(tmp_path: Path, path: str, lane: str) -> None:
    body = json.dumps({"model": "m", "query": "q", "documents": ["a", "b"], "own": 1}).encode()
    async with FakeUpstream() as engine, gateway(tmp_path, table(model("m", target_of(engine))), lane=lane) as gw:
        answer = await raw_request((gw.host, gw.port), path, body)
    assert answer.status == 200
    assert (engine.seen[0].path, engine.seen[0].body) == (path, body)


@pytest.mark.parametrize("path", [*INFERENCE_PATHS[1:], *FORM_PATHS])
async def test_a_path_that_the_models_engine_does_not_serve_is_refused(tmp_path: Path, path: str) -> None:
    is_form = path in FORM_PATHS
    headers = {"content-type": "multipart/form-data; boundary=b" if is_form else "application/json"}
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine, routes=["/v1/chat/completions"])))
        async with gateway(tmp_path, routes) as gw:
            answer = await raw_request((gw.host, gw.port), path, FORM if is_form else b'{"model":"m"}', headers)
    assert (answer.status, answer.error["code"]) == (400, "wrong_model_kind")
    assert engine.seen == []
