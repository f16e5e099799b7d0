"""Every route from outside: health, models, node, errors in one envelope, keys, models that are not ready."""

import asyncio
import json
import re
from pathlib import Path
from time import monotonic

import msgspec
import pytest
from msgspec import structs

from core.api import ErrorBody, RouteTable
from core.cluster import ClusterNodeState, ClusterState
from gateway.table import INFERENCE_PATHS
from tests.fakes.upstream import FakeUpstream
from tests.integration.gateway.harness import (
    CHAT,
    Gateway,
    chat,
    gateway,
    prepare_layout,
    raw_request,
    serve_app,
    target_of,
)
from tests.unit.gateway.tables import key, model, table, target, unready
from tests.unit.gateway.test_decode import RIGHT, WRONG


def at(gw: Gateway) -> tuple[str, int]:
    return gw.host, gw.port


async def test_health_is_public_and_ready_waits_for_routes(tmp_path: Path) -> None:
    routes = table(model("m", target()), keys=(key("k"),), allow_missing_auth=False)
    async with gateway(tmp_path, routes) as gw:
        for method in ("GET", "HEAD"):
            for path in ("/health", "/health/ready", "/"):
                answer = await raw_request(at(gw), path, method=method)
                assert (answer.status, bool(answer.body)) == (200, method == "GET"), path
        assert json.loads((await raw_request(at(gw), "/health", method="GET")).body)["ok"] is True


async def test_without_any_table_it_lives_and_says_that_it_is_not_ready(tmp_path: Path) -> None:
    prepare_layout(tmp_path)
    async with serve_app(tmp_path) as address:
        assert (await raw_request(address, "/health", method="GET")).status == 200
        for path, method in (("/health/ready", "GET"), ("/v1/models", "GET"), ("/gateway/node", "GET"), (CHAT, "POST")):
            answer = await raw_request(address, path, chat() if method == "POST" else b"", method=method)
            assert (answer.status, answer.error["code"]) == (503, "gateway_not_ready")
            assert answer.headers["retry-after"]


async def test_models_are_listed_and_found_by_ids_with_slashes(tmp_path: Path) -> None:
    routes = table(
        model("org/name:8b", target(), aliases=("gpt-4",)),
        model("hidden", target(), advertise=False),
        model("down", unready("failed")),
    )
    async with gateway(tmp_path, routes) as gw:
        listed = json.loads((await raw_request(at(gw), "/v1/models", method="GET")).body)
        assert [each["id"] for each in listed["data"]] == ["org/name:8b", "down"]
        assert {each["object"] for each in listed["data"]} == {"model"}
        for path, id_ in [("org/name:8b", "org/name:8b"), ("org%2Fname%3A8b", "org/name:8b"), ("gpt-4", "gpt-4")]:
            answer = await raw_request(at(gw), f"/v1/models/{path}", method="GET")
            assert (answer.status, json.loads(answer.body)["id"]) == (200, id_)
        missing = await raw_request(at(gw), "/v1/models/a/b/c", method="GET")
        assert (missing.status, missing.error["code"], missing.error["model"]) == (404, "unknown_model", "a/b/c")


async def test_node_and_status_tell_the_daemons_view_and_no_address(tmp_path: Path) -> None:
    async with gateway(tmp_path, table(model("m", target("t1", port=8201), unready("failed", "t2")))) as gw:
        node = json.loads((await raw_request(at(gw), "/gateway/node", method="GET")).body)
        status = json.loads((await raw_request(at(gw), "/gateway/status", method="GET")).body)
        await gw.daemon.stop()
        away = await raw_request(at(gw), "/gateway/node", method="GET")
    assert node["ok"] is True
    assert {"id", "name", "local", "reachable", "system", "models", "telemetry", "runtimeManager"} <= set(node["node"])
    assert node["node"]["telemetry"]["memory"]["totalBytes"] == 16 << 30
    assert node["node"]["runtimeManager"]["runtimes"]["r1"]["status"] == "running"
    assert status["gateway"]["endpointCount"] == 2 and status["gateway"]["readyEndpointCount"] == 1
    assert node["node"]["runtimeManager"]["runtimes"]["r1"]["kvEvents"] is True
    assert not [where for where in ("8201", "/run/x") if where in json.dumps(node) + json.dumps(status)]
    assert (away.status, away.error["code"]) == (503, "daemon_unavailable")


CLUSTER = ClusterState(
    id="lab",
    node_id="n1",
    leader_node="n2",
    nodes=[
        ClusterNodeState(id="n1", name="first", local=True, labels={"role": "worker"}, resources={"memoryGb": 64}),
        ClusterNodeState(id="n2", endpoint="http://10.0.0.2:8100", labels={"hardware": "dgx-spark"}),
        ClusterNodeState(id="n3", endpoint="http://10.0.0.3:8100", enabled=False),
    ],
)


async def test_the_cluster_has_this_nodes_own_snapshot_and_guesses_nothing_of_the_others(tmp_path: Path) -> None:
    async with gateway(tmp_path, table(model("m", target("t1", port=8201)))) as gw:
        alone = json.loads((await raw_request(at(gw), "/gateway/cluster", method="GET")).body)["cluster"]
        gw.daemon.state = structs.replace(gw.daemon.state, cluster=CLUSTER)
        answer = json.loads((await raw_request(at(gw), "/gateway/cluster", method="GET")).body)
        own = json.loads((await raw_request(at(gw), "/gateway/node", method="GET")).body)["node"]
    assert (alone["enabled"], alone["leaderNode"], list(alone["nodes"])) == (False, "n1", ["n1"])
    cluster, nodes = answer["cluster"], answer["cluster"]["nodes"]
    assert (answer["ok"], cluster["enabled"], cluster["id"]) == (True, True, "lab")
    assert (cluster["nodeId"], cluster["leaderNode"], list(nodes)) == ("n1", "n2", ["n1", "n2", "n3"])
    assert set(own) - set(nodes["n1"]) == set() and nodes["n1"]["runtimeManager"] == own["runtimeManager"]
    assert (own["name"], own["labels"], own["resources"]) == ("first", {"role": "worker"}, {"memoryGb": 64})
    assert [nodes[each]["state"] for each in nodes] == ["reachable", "unknown", "disabled"]
    assert nodes["n2"] == {
        "id": "n2",
        "name": "n2",
        "local": False,
        "reachable": None,
        "labels": {"hardware": "dgx-spark"},
        "resources": {},
        "telemetry": None,
        "runtimeManager": {"runtimes": {}},
        "endpoint": "http://10.0.0.2:8100",
        "state": "unknown",
    }


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "not_found"),
        ("GET", "/v1/nope", 404, "not_found"),
        ("GET", "/%00%ff/../x", 404, "not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("PUT", "/health", 405, "method_not_allowed"),
        ("POST", "/gateway/node", 405, "method_not_allowed"),
        ("POST", "/gateway/cluster", 405, "method_not_allowed"),
        ("BREW", "/health", 400, "malformed_request"),
        ("GET", "/v1/models/" + "x" * 3000, 404, "unknown_model"),
        ("GET", "/v1/models/%22%0a%ff%f0", 404, "unknown_model"),
    ],
)
async def test_every_error_has_the_one_envelope(tmp_path: Path, method: str, path: str, status: int, code: str) -> None:
    async with gateway(tmp_path, table(model("m", target()))) as gw:
        answer = await raw_request(at(gw), path, method=method, headers={"accept": "application/xml, text/html"})
    assert (answer.status, answer.error["code"]) == (status, code)
    assert set(answer.error) - {"model"} == {"message", "type", "code"}
    assert answer.headers["content-type"].startswith("application/json")


async def test_a_method_that_is_not_allowed_is_told_which_are(tmp_path: Path) -> None:
    async with gateway(tmp_path, table(model("m", target()))) as gw:
        answer = await raw_request(at(gw), CHAT, method="GET")
    assert "POST" in answer.headers["allow"]


async def test_an_unknown_model_is_a_404_that_names_it(tmp_path: Path) -> None:
    async with gateway(tmp_path, table(model("m", target()))) as gw:
        answer = await raw_request(at(gw), CHAT, chat('x"\n\u00e9'))
    assert (answer.status, answer.error["code"], answer.error["model"]) == (404, "unknown_model", 'x"\n\u00e9')


def closed(admin: bool) -> RouteTable:
    keys = (key("user"), key("root", "admin")) if admin else (key("user"),)
    return table(model("m", target()), keys=keys, allow_missing_auth=False)


async def test_all_authentication_failures_are_the_same_bytes(tmp_path: Path) -> None:
    sent: list[dict[str, str]] = [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer "},
        {"authorization": "Basic dXNlcjp1c2Vy"},
        {"authorization": "user"},
        {"authorization": "Bearer " + "x" * 9000},
        {"authorization": "Bearer \xff\xfe"},
        {"x-api-key": "wrong"},
        {"x-api-key": ""},
        {"authorization": "Bearer wrong", "x-api-key": "user"},
        {"cookie": "key=user"},
    ]
    requests = [("POST", CHAT, chat()), ("GET", "/v1/models", b""), ("GET", "/gateway/node", b"")]
    requests += [("POST", CHAT, b"not json"), ("POST", CHAT, chat("no-such-model"))]
    answers = set()
    async with gateway(tmp_path, closed(admin=True)) as gw:
        for headers in sent:
            for method, path, body in requests:
                answer = await raw_request(at(gw), path, body, headers, method)
                rest = {n: v for n, v in answer.headers.items() if n not in ("x-request-id", "date")}
                answers.add((answer.status, answer.body, json.dumps(rest)))
        assert (await raw_request(at(gw), "/v1/models", headers={"x-api-key": "user"}, method="GET")).status == 200
    assert len(answers) == 1
    status, body, kept = answers.pop()
    assert status == 401
    assert re.search(rb"sha|key=|user|root", body) is None
    assert json.loads(kept)["www-authenticate"] == "Bearer"


async def test_an_inference_key_opens_no_admin_route_where_admin_keys_exist(tmp_path: Path) -> None:
    async with gateway(tmp_path, closed(admin=True)) as gw:
        user = await raw_request(at(gw), "/gateway/node", headers={"authorization": "Bearer user"}, method="GET")
        root = await raw_request(at(gw), "/gateway/node", headers={"authorization": "Bearer root"}, method="GET")
    assert (user.status, root.status) == (401, 200)


async def test_a_web_page_of_another_origin_cannot_read_the_admin_class(tmp_path: Path) -> None:
    async with gateway(tmp_path, table(model("m", target()))) as gw:
        answer = await raw_request(at(gw), "/gateway/node", headers={"origin": "http://evil.example"}, method="GET")
    assert (answer.status, answer.error["code"]) == (403, "admin_origin_denied")


@pytest.mark.parametrize(("body", "code"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
async def test_hostile_bodies_are_a_400_end_to_end(tmp_path: Path, body: bytes, code: str) -> None:
    async with gateway(tmp_path, table(model("a", target()))) as gw:
        answer = await raw_request(at(gw), CHAT, body)
        assert (answer.status, answer.error["code"]) == (400, code)
        assert (await raw_request(at(gw), "/health", method="GET")).status == 200


@pytest.mark.parametrize(("body", "name", "stream"), [row[1:] for row in RIGHT], ids=[row[0] for row in RIGHT])
async def test_odd_bodies_that_are_right_reach_the_engine_whole(
    tmp_path: Path, body: bytes, name: str, stream: bool
) -> None:
    async with FakeUpstream() as engine, gateway(tmp_path, table(model(name, target_of(engine)))) as gw:
        answer = await raw_request(at(gw), CHAT, body)
    assert engine.seen[0].body == body
    assert answer.status in (200, 500), "what the engine makes of it is its own affair"


@pytest.mark.parametrize(
    ("field", "value"), [("content-encoding", "gzip"), ("content-type", "multipart/form-data; boundary=x")]
)
async def test_what_cannot_be_json_is_a_415(tmp_path: Path, field: str, value: str) -> None:
    async with gateway(tmp_path, table(model("m", target()))) as gw:
        answer = await raw_request(at(gw), CHAT, chat(), {field: value})
    assert answer.status == 415 and answer.error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("state", "hold", "code", "again"),
    [
        ("starting", False, "model_loading", True),
        ("failed", False, "runtime_failed", False),
        ("stopped", True, "runtime_stopped", False),
    ],
)
async def test_a_model_that_is_not_ready_says_why(
    tmp_path: Path, state: str, hold: bool, code: str, again: bool
) -> None:
    routes = table(model("m", unready(state, reason="because of tests", hold=hold)))
    async with gateway(tmp_path, routes) as gw:
        answer = await raw_request(at(gw), CHAT, chat())
        assert gw.daemon.starts == []
    assert (answer.status, answer.error["code"]) == (503, code)
    assert ("retry-after" in answer.headers) is again
    assert (answer.error["state"], answer.error["reason"]) == (state, "because of tests")


async def test_many_requests_for_a_stopped_model_ask_for_one_start(tmp_path: Path) -> None:
    async with gateway(tmp_path, table(model("m", unready("stopped", runtime="r9")))) as gw:
        gw.daemon.start_delay_s = 0.3
        answers = await asyncio.gather(*(raw_request(at(gw), CHAT, chat()) for _ in range(20)))
        assert [(id_, request.wait) for id_, request in gw.daemon.starts] == [("r9", True)]
    assert {(answer.status, answer.error["code"]) for answer in answers} == {(503, "model_loading")}
    assert {answer.headers["retry-after"] for answer in answers} == {"5"}


async def test_a_model_that_becomes_ready_within_a_moment_answers_the_request_that_woke_it(tmp_path: Path) -> None:
    stopped = table(model("m", unready("stopped")))
    async with FakeUpstream() as engine, gateway(tmp_path, stopped) as gw:
        asking = asyncio.create_task(raw_request(at(gw), CHAT, chat()))
        await gw.daemon.started.wait()
        gw.daemon.publish(msgspec.structs.replace(table(model("m", target_of(engine))), version=2))
        assert (await asking).status == 200


async def test_the_daemons_refusal_to_start_is_what_the_client_hears(tmp_path: Path) -> None:
    async with gateway(tmp_path, table(model("m", unready("stopped")))) as gw:
        gw.daemon.refusal = (429, ErrorBody(code="no_room", message="runtime 'm' needs 48 GiB; 31 are free"))
        busy = await raw_request(at(gw), CHAT, chat())
        gw.daemon.refusal = (409, ErrorBody(code="held", message="runtime 'm' is held by an operator."))
        held = await raw_request(at(gw), CHAT, chat())
    assert (busy.status, busy.error["code"], "retry-after" in busy.headers) == (503, "model_unavailable", True)
    assert "31 are free" in busy.error["message"]
    assert (held.status, held.error["code"], "retry-after" in held.headers) == (503, "runtime_stopped", False)


@pytest.mark.parametrize(
    ("refused_with", "code", "status", "again"),
    [
        (429, "runtime_capacity_busy", 429, True),
        (503, "runtime_capacity_impossible", 503, False),
        (503, "runtime_keep_warm_conflict", 503, False),
        (503, "runtime_authority_conflict", 503, False),
        (503, "runtime_size_unknown", 503, False),
    ],
)
async def test_admissions_refusal_reaches_the_client_word_for_word(
    tmp_path: Path, refused_with: int, code: str, status: int, again: bool
) -> None:
    words = "runtime 'm' needs 48 GiB; 31 are free and 'flux' is pinned."
    async with gateway(tmp_path, table(model("m", unready("stopped")))) as gw:
        gw.daemon.refusal = (refused_with, ErrorBody(code=code, message=words, hint="llmgw runtime-plan m"))
        answer = await raw_request(at(gw), CHAT, chat())
    assert (answer.status, answer.error["code"], answer.error["message"]) == (status, code, words)
    assert ("retry-after" in answer.headers) is again


async def test_a_refusal_that_comes_late_still_reaches_who_waits(tmp_path: Path) -> None:
    stopped = table(model("m", unready("stopped", request_startup_wait_ms=20_000)))
    async with gateway(tmp_path, stopped) as gw:
        gw.daemon.start_delay_s = 1.5
        gw.daemon.refusal = (429, ErrorBody(code="runtime_capacity_busy", message="'n' is busy"))
        answer = await raw_request(at(gw), CHAT, chat())
    assert (answer.status, answer.error["code"]) == (429, "runtime_capacity_busy")


async def test_a_request_waits_for_its_model_as_long_as_the_runtime_says(tmp_path: Path) -> None:
    async with gateway(tmp_path, table(model("m", unready("starting", request_startup_wait_ms=0)))) as gw:
        took_s = []
        for _ in range(5):
            before_s = monotonic()
            at_once = await raw_request(at(gw), CHAT, chat())
            took_s.append(monotonic() - before_s)
            assert (at_once.status, at_once.error["code"]) == (503, "model_loading")
    # Usual is a second, for each of them; a busy machine holds up some.
    assert min(took_s) < 0.5


@pytest.mark.parametrize("path", INFERENCE_PATHS)
async def test_a_stopped_node_turns_every_inference_request_away(tmp_path: Path, path: str) -> None:
    async with FakeUpstream() as engine, gateway(tmp_path, table(model("m", target_of(engine)), serving=False)) as gw:
        answer = await raw_request(at(gw), path, chat())
        listed = await raw_request(at(gw), "/v1/models", method="GET")
    assert (answer.status, answer.error["code"], "retry-after" in answer.headers) == (503, "system_stopped", False)
    assert (listed.status, engine.seen, gw.daemon.starts) == (200, [], [])


async def test_a_stopped_node_tells_strangers_nothing(tmp_path: Path) -> None:
    routes = table(model("m", unready("stopped")), keys=(key("k1"),), serving=False, allow_missing_auth=False)
    async with gateway(tmp_path, routes) as gw:
        assert (await raw_request(at(gw), CHAT, chat())).status == 401


async def test_a_node_that_is_stopped_while_a_request_waits_says_so(tmp_path: Path) -> None:
    routes = table(model("m", unready("starting", request_startup_wait_ms=20_000)))
    async with gateway(tmp_path, routes) as gw:
        asking = asyncio.create_task(raw_request(at(gw), CHAT, chat()))
        await gw.daemon.wait_reports(lambda reports: any(report.runtimes for report in reports))
        gw.daemon.publish(msgspec.structs.replace(routes, version=2, serving=False))
        answer = await asking
    assert (answer.status, answer.error["code"]) == (503, "system_stopped")


async def test_a_client_that_leaves_while_its_model_loads_does_not_stop_the_load(tmp_path: Path) -> None:
    async with gateway(tmp_path, table(model("m", unready("stopped")))) as gw:
        gw.daemon.start_delay_s = 0.2
        _, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(chat()) + chat()
        )
        await gw.daemon.started.wait()
        writer.close()
        answer = await raw_request(at(gw), CHAT, chat())
        assert answer.error["code"] == "model_loading"
        assert len(gw.daemon.starts) == 1, "the second request joined the first one's start"
