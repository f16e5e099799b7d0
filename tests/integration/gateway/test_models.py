"""The list of models as each API's own SDK reads it, and its pages."""

import json
from pathlib import Path

import msgspec
import pytest
from anthropic import AsyncAnthropic, AuthenticationError, BadRequestError, NotFoundError
from openai import AsyncOpenAI

from tests.integration.gateway.harness import gateway, raw_request
from tests.unit.gateway.tables import key, model, table, target

ANTHROPIC = {"anthropic-version": "2023-06-01"}
NAMES = ["a", "org/b:8b", "c", "d", "e"]


async def test_anthropics_sdk_lists_all_pages_and_finds_one_by_alias(tmp_path: Path) -> None:
    first = msgspec.structs.replace(model("a", target()), context_window=8192)
    routes = table(first, *(model(name, target(), aliases=(f"{name}-x",)) for name in NAMES[1:]))
    async with gateway(tmp_path, routes) as gw, AsyncAnthropic(base_url=gw.url, api_key="k", max_retries=0) as client:
        listed = [each async for each in await client.models.list(limit=2)]
        back = await client.models.list(limit=2, before_id="d")
        one = await client.models.retrieve("c-x")
        with pytest.raises(NotFoundError) as missing:
            await client.models.retrieve("nope")
        with pytest.raises(BadRequestError):
            await client.models.list(limit=0)
    assert [each.id for each in listed] == NAMES
    assert (listed[0].max_input_tokens, listed[1].max_input_tokens) == (8192, None)
    assert (listed[1].type, listed[1].display_name, listed[1].lifecycle) == ("model", "org/b:8b", "active")
    assert ([each.id for each in back.data], back.has_more, back.first_id) == (["org/b:8b", "c"], True, "org/b:8b")
    assert (one.id, one.display_name) == ("c-x", "c")
    assert isinstance(missing.value.body, dict)
    assert missing.value.body["error"]["type"] == "not_found_error"


async def test_a_wrong_key_is_refused_in_anthropics_words(tmp_path: Path) -> None:
    routes = table(model("m", target()), keys=(key("k"),), allow_missing_auth=False)
    async with gateway(tmp_path, routes) as gw, AsyncAnthropic(base_url=gw.url, api_key="no", max_retries=0) as client:
        with pytest.raises(AuthenticationError) as caught:
            await client.models.list()
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["type"] == "error"


@pytest.mark.parametrize(
    ("query", "ids", "more"),
    [
        ("", NAMES, False),
        ("limit=5", NAMES, False),
        ("limit=4", NAMES[:4], True),
        ("after_id=e", [], False),
        ("after_id=nope", [], False),
        ("before_id=a", [], False),
        ("before_id=nope", [], False),
        ("limit=1&after_id=org/b:8b", ["c"], True),
        ("limit=1000&before_id=c", NAMES[:2], False),
    ],
)
async def test_pages(tmp_path: Path, query: str, ids: list[str], more: bool) -> None:
    async with gateway(tmp_path, table(*(model(name, target()) for name in NAMES))) as gw:
        answer = await raw_request((gw.host, gw.port), f"/v1/models?{query}", headers=ANTHROPIC, method="GET")
    page = json.loads(answer.body)
    assert ([each["id"] for each in page["data"]], page["has_more"]) == (ids, more)
    assert (page["first_id"], page["last_id"]) == ((ids[0], ids[-1]) if ids else (None, None))


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=x", "limit=-1", "limit=9" + "9" * 5000, "limit=%C2%B2", "after_id=a&before_id=b"],
)
async def test_a_page_that_cannot_be_is_a_400(tmp_path: Path, query: str) -> None:
    async with gateway(tmp_path, table(model("a", target()))) as gw:
        answer = await raw_request((gw.host, gw.port), f"/v1/models?{query}", headers=ANTHROPIC, method="GET")
    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")


async def test_openais_sdk_reads_its_own_shape_with_what_is_known_beside_it(tmp_path: Path) -> None:
    chat = msgspec.structs.replace(model("m", target(routes=["/v1/chat/completions"])), context_window=4096)
    async with gateway(tmp_path, table(chat)) as gw, AsyncOpenAI(base_url=f"{gw.url}/v1", api_key="k") as client:
        listed = [each async for each in client.models.list()]
    assert listed[0].object == "model"
    assert listed[0].model_dump()["metadata"] == {
        "kind": "chat",
        "endpoints": ["/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses"],
        "contextWindow": 4096,
    }
