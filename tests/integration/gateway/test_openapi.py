"""`/openapi.json`: valid by OpenAPI's own schema, the same as the routes, and true of what they answer.

`tests/data/openapi/schema-3.1.json` is the OpenAPI Initiative's, of 2022-10-07 (Apache-2.0).
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from core import VERSION
from gateway.auth import Access
from gateway.openapi.document import build_document
from gateway.openapi.operations import OPERATIONS
from gateway.openapi.schemas import SCHEMAS
from tests.fakes.upstream import FakeUpstream
from tests.integration.gateway.harness import CHAT, gateway, raw_request, target_of
from tests.integration.gateway.jobs import JOBS, job
from tests.unit.gateway.tables import key, model, table, target

SCHEMA = json.loads((Path(__file__).parents[2] / "data/openapi/schema-3.1.json").read_text())
DOCUMENT = json.loads(json.dumps(build_document(OPERATIONS, VERSION)))


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inside in value.items():
            if name == "$ref":
                yield str(inside)
            yield from references(inside)
    elif isinstance(value, list):
        for inside in value:
            yield from references(inside)


def test_the_document_is_valid_openapi() -> None:
    errors = [
        f"{list(error.absolute_path)}: {error.message}" for error in Draft202012Validator(SCHEMA).iter_errors(DOCUMENT)
    ]
    assert errors == []


def test_the_schema_that_judges_does_find_faults() -> None:
    broken = json.loads(json.dumps(DOCUMENT))
    del broken["paths"]["/health"]["get"]["responses"]
    broken["paths"]["/health"]["get"]["parameters"] = [{"in": "query"}]
    assert list(Draft202012Validator(SCHEMA).iter_errors(broken))


def test_every_component_is_a_schema_and_every_reference_leads_to_one_that_is_used() -> None:
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)
    assert set(references(DOCUMENT)) == {f"#/components/schemas/{name}" for name in SCHEMAS}


def test_operations_have_names_of_their_own_and_parameters_that_stand_in_their_paths() -> None:
    ids = [operation.operation_id for operation in OPERATIONS]
    assert len(set(ids)) == len(ids) and all(name.isidentifier() for name in ids)
    for operation in OPERATIONS:
        named = {parameter.name for parameter in operation.parameters if parameter.place == "path"}
        assert set(re.findall(r"\{(\w+)\}", operation.path)) == named


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.operation_id)
async def test_a_route_asks_for_the_key_that_the_document_says(tmp_path: Path, operation: object) -> None:
    assert isinstance(operation, type(OPERATIONS[0]))
    path = operation.path.replace("{action}", "stop").replace("{runtime_id}", "r1")
    path = (
        path.replace("{job_id}", "job_1")
        .replace("{model_id}", "m")
        .replace("{rest}", "m/queue")
        .replace("plan", "plan?runtime=r1")
    )
    keys = (key("user"), key("root", "admin"))
    routes = table(model("m", target()), keys=keys, bind_host="0.0.0.0", allow_remote_admin=True)
    found = []
    async with gateway(tmp_path, routes) as gw:
        for name in ("", "user", "root"):
            headers = {"authorization": f"Bearer {name}"} if name else {}
            body = b"{}" if operation.method == "POST" else b""
            answer = await raw_request((gw.host, gw.port), path, body, headers, operation.method)
            found.append(answer.status == 401)
            documented = {
                int(status) for status in DOCUMENT["paths"][operation.path][operation.method.lower()]["responses"]
            }
            assert answer.status in documented, (answer.status, answer.body)
    closed = {
        Access.PUBLIC: [False, False, False],
        Access.INFERENCE: [True, False, False],
        Access.ADMIN: [True, True, False],
    }
    assert found == closed[operation.access]


def check(answer: bytes, schema: str) -> None:
    rooted = {"$ref": f"#/components/schemas/{schema}", "components": {"schemas": SCHEMAS}}
    Draft202012Validator(rooted).validate(json.loads(answer))


async def test_answers_are_as_they_are_described(tmp_path: Path) -> None:
    async with FakeUpstream() as engine, gateway(tmp_path, table(model("m", target_of(engine)))) as gw:
        at = (gw.host, gw.port)
        for operation in OPERATIONS:
            schema = operation.replies[0].schema
            if operation.method == "GET" and schema and "{job_id}" not in operation.path:
                check((await raw_request(at, operation.path.replace("{model_id}", "m"), method="GET")).body, schema)
        made = await raw_request(at, JOBS, job())
        check(made.body, "Job")
        check((await raw_request(at, f"{JOBS}/{json.loads(made.body)['id']}", method="GET")).body, "Job")
        check((await raw_request(at, "/gateway/runtimes/r1/stop")).body, "RuntimeDone")
        check((await raw_request(at, CHAT, b"{}")).body, "Error")
        check((await raw_request(at, "/v1/messages", b"{}")).body, "AnthropicError")


async def test_the_document_is_served_to_everybody(tmp_path: Path) -> None:
    routes = table(model("secret-model", target()), keys=(key("user"),), allow_missing_auth=False)
    async with gateway(tmp_path, routes) as gw:
        answer = await raw_request((gw.host, gw.port), "/openapi.json", method="GET")
    assert (answer.status, json.loads(answer.body)) == (200, DOCUMENT)
    assert b"secret-model" not in answer.body
