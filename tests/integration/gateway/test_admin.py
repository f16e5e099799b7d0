"""`/gateway/*` from outside: what is told of the node, what an administrator may do, and who may not."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from core.admission import PlanRow
from core.api import ErrorBody, RouteTable
from core.engines import EngineBuild
from core.firewall import FirewallState
from tests.integration.gateway.harness import Answer, Gateway, gateway, raw_request
from tests.unit.gateway.tables import key, model, table, target

STOP = "/gateway/runtimes/r1/stop"
WRITES = [
    ("/gateway/runtimes/r1/start", "start r1"),
    (STOP, "stop r1"),
    ("/gateway/runtimes/r1/restart", "restart r1"),
    ("/gateway/runtimes/r1/warmup", "warmup r1"),
    ("/gateway/runtimes/r1/admit", "admit r1"),
    ("/gateway/runtimes/stop-all", "serving"),
    ("/gateway/runtimes/keep-warm", "serving"),
]
APPLY = b'{"apply": true, "yes": true}'


async def ask(gw: Gateway, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await raw_request((gw.host, gw.port), path, body, sent, method)


def remote(*, admin: bool = True, allow: bool = True) -> RouteTable:
    """A gateway that listens off loopback."""
    keys = (key("user"), *((key("root", "admin"),) if admin else ()))
    return table(model("m", target()), keys=keys, bind_host="0.0.0.0", allow_remote_admin=allow)


async def test_security_is_public_and_says_which_keys_are_asked_for(tmp_path: Path) -> None:
    async with gateway(tmp_path, remote()) as gw:
        closed = json.loads((await ask(gw, "/gateway/security")).body)
    async with gateway(tmp_path / "o", table(model("m", target()))) as gw:
        opened = json.loads((await ask(gw, "/gateway/security")).body)
    assert closed == {
        "loopback": False, "bindHost": "0.0.0.0", "allowMissingAuth": True, "allowRemoteAdmin": True,
        "allowNonLoopbackBind": False, "authRequired": True, "adminAuthRequired": True,
        "inferenceKeysConfigured": True, "adminKeysConfigured": True, "publicTelemetry": False,
    }  # fmt: skip
    assert (opened["authRequired"], opened["adminAuthRequired"], opened["loopback"]) == (False, False, True)


async def test_the_catalog_has_what_is_hidden_and_aliases_and_no_address(tmp_path: Path) -> None:
    routes = table(model("m", target(port=8201), aliases=("x",)), model("hidden", target("t2"), advertise=False))
    async with gateway(tmp_path, routes) as gw:
        answer = await ask(gw, "/gateway/models")
    found = {entry["id"]: entry for entry in json.loads(answer.body)["models"]}
    assert (found["m"]["aliases"], found["hidden"]["advertise"]) == (["x"], False)
    assert b"8201" not in answer.body


async def test_engines_are_told_without_their_folders(tmp_path: Path) -> None:
    async with gateway(tmp_path, table()) as gw:
        gw.daemon.builds = [EngineBuild(engine="llamacpp", name="b1", version="1", path="/secret/place", active=True)]
        answer = await ask(gw, "/gateway/engines")
    assert [(b["engine"], b["name"], b["active"]) for b in json.loads(answer.body)["builds"]] == [
        ("llamacpp", "b1", True)
    ]
    assert b"/secret/place" not in answer.body


async def test_the_node_tells_how_its_firewall_stands_and_not_the_table(tmp_path: Path) -> None:
    async with gateway(tmp_path, table()) as gw:
        before = json.loads((await ask(gw, "/gateway/node")).body)["node"]["firewall"]
        wall = FirewallState(enabled=True, state="unguarded", code="firewall_unavailable", table="table inet llmgw {}")
        gw.daemon.state = msgspec.structs.replace(gw.daemon.state, firewall=wall)
        after = json.loads((await ask(gw, "/gateway/node")).body)["node"]["firewall"]
    assert before is None
    assert (after["state"], after["code"], "table" in after) == ("unguarded", "firewall_unavailable", False)


@pytest.mark.parametrize("name", ["runtime", "runtime_id", "runtime-id"])
async def test_a_plan_is_shown_in_rows_and_as_actions(tmp_path: Path, name: str) -> None:
    async with gateway(tmp_path, table()) as gw:
        gw.daemon.plan = msgspec.structs.replace(
            gw.daemon.plan,
            runtimes=[
                PlanRow(id="a", action="start", reason="requested"),
                PlanRow(id="b", action="stop", reason="idle; makes room"),
                PlanRow(id="c", action="keep", reason="active-requests"),
            ],
        )
        plan = json.loads((await ask(gw, f"/gateway/runtimes/plan?{name}=a")).body)
        assert gw.daemon.asked == []
    assert (plan["ok"], plan["requestedRuntimeId"], plan["admission"]["message"]) == (True, "a", "it fits")
    assert [(a["type"], a["runtimeId"]) for a in plan["actions"]] == [("stop", "b"), ("start", "a")]
    assert plan["protected"] == [{"runtimeId": "c", "protectedReasons": ["active-requests"]}]


async def test_a_plan_of_nothing_is_a_400(tmp_path: Path) -> None:
    async with gateway(tmp_path, table()) as gw:
        answer = await ask(gw, "/gateway/runtimes/plan")
    assert (answer.status, answer.error["code"]) == (400, "invalid_request")


@pytest.mark.parametrize(("path", "done"), WRITES)
async def test_an_administrator_has_it_done_by_the_daemon(tmp_path: Path, path: str, done: str) -> None:
    async with gateway(tmp_path, remote()) as gw:
        answer = await ask(gw, path, "POST", APPLY if "admit" in path else b"", authorization="Bearer root")
        asked = [what for what, _ in gw.daemon.asked] + [f"start {id_}" for id_, _ in gw.daemon.starts]
    assert (answer.status, json.loads(answer.body)["ok"], asked) == (200, True, [done])


@pytest.mark.parametrize(("path", "done"), WRITES)
@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "unauthorized"),
        ({"authorization": "Bearer user"}, 401, "unauthorized"),
        ({"authorization": "Bearer root", "origin": "http://evil.example"}, 403, "admin_origin_denied"),
        ({"authorization": "Bearer root", "sec-fetch-site": "cross-site"}, 403, "admin_origin_denied"),
        ({"authorization": "Bearer root", "origin": "null"}, 403, "admin_origin_denied"),
    ],
)
async def test_nobody_else_does(
    tmp_path: Path, path: str, done: str, headers: dict[str, str], status: int, code: str
) -> None:
    async with gateway(tmp_path, remote()) as gw:
        answer = await raw_request((gw.host, gw.port), path, APPLY, headers)
        assert gw.daemon.asked == [] and gw.daemon.starts == []
    assert (answer.status, answer.error["code"]) == (status, code)


async def test_a_name_that_was_rebound_to_loopback_opens_nothing_there(tmp_path: Path) -> None:
    async with gateway(tmp_path, table(model("m", target()))) as gw:
        request = b"POST %b HTTP/1.1\r\nhost: evil.example:8100\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        answer = await raw_request((gw.host, gw.port), STOP)
        assert answer.status == 200
        refused = await send(gw, request % STOP.encode())
        assert [what for what, _ in gw.daemon.asked] == ["stop r1"]
    assert b" 403 " in refused and b"admin_origin_denied" in refused


async def send(gw: Gateway, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(gw.host, gw.port)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("admin", "allow", "presented", "code"),
    [(True, False, "root", "remote_admin_disabled"), (False, True, "user", "admin_key_required")],
)
async def test_off_loopback_the_config_must_allow_it_and_an_inference_key_is_never_enough(
    tmp_path: Path, admin: bool, allow: bool, presented: str, code: str
) -> None:
    async with gateway(tmp_path, remote(admin=admin, allow=allow)) as gw:
        answer = await ask(gw, STOP, "POST", authorization=f"Bearer {presented}")
        node = await ask(gw, "/gateway/node", authorization=f"Bearer {presented}")
        assert gw.daemon.asked == []
    assert (answer.status, answer.error["code"], node.status) == (403, code, 200)


async def test_a_start_can_be_waited_for_or_not(tmp_path: Path) -> None:
    async with gateway(tmp_path, table()) as gw:
        await ask(gw, "/gateway/runtimes/r1/start", "POST", b'{"force": true, "warmup": false}')
        await ask(gw, "/gateway/runtimes/r1/start", "POST", b'{"wait": false}')
        assert [(request.wait, request.reason) for _, request in gw.daemon.starts] == [
            (True, "operator"), (False, "operator"),
        ]  # fmt: skip


async def test_admit_shows_its_plan_before_it_is_applied_with_a_yes(tmp_path: Path) -> None:
    path = "/gateway/runtimes/r1/admit"
    async with gateway(tmp_path, table()) as gw:
        shown = await ask(gw, path, "POST")
        half = await ask(gw, path, "POST", b'{"apply": true}')
        assert gw.daemon.asked == []
    assert (json.loads(shown.body)["applied"], half.status, half.error["code"]) == (False, 400, "bad_request")


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"wait": "yes"}', b"[" * 9000, b"\xff", b'{"wait": ' + b" " * 70000])
async def test_a_hostile_body_is_a_400_and_does_nothing(tmp_path: Path, body: bytes) -> None:
    async with gateway(tmp_path, table()) as gw:
        answer = await ask(gw, "/gateway/runtimes/r1/start", "POST", body)
        assert gw.daemon.starts == []
    assert answer.status == 400


@pytest.mark.parametrize("path", [path for path, _ in WRITES if "start" not in path])
async def test_the_daemons_refusal_is_answered_in_its_own_words(tmp_path: Path, path: str) -> None:
    async with gateway(tmp_path, table()) as gw:
        gw.daemon.refusal = (403, ErrorBody(code="runtime_authority_forbidden", message="r1 belongs to gpu-9"))
        answer = await ask(gw, path, "POST", APPLY if "admit" in path else b"")
    assert (answer.status, answer.error["code"]) == (403, "runtime_authority_forbidden")
    assert (answer.error["type"], answer.error["message"]) == ("permission_error", "r1 belongs to gpu-9")


@pytest.mark.parametrize(
    "path", ["/gateway/runtimes/r1/explode", "/gateway/runtimes/r1", "/gateway/runtimes/a%2Fb/stop/x"]
)
async def test_what_cannot_be_done_to_a_runtime_is_a_404(tmp_path: Path, path: str) -> None:
    async with gateway(tmp_path, table()) as gw:
        answer = await ask(gw, path, "POST")
    assert (answer.status, answer.error["code"]) == (404, "not_found")


async def test_ids_reach_the_daemon_as_they_are_and_cannot_leave_their_place(tmp_path: Path) -> None:
    async with gateway(tmp_path, table()) as gw:
        await ask(gw, "/gateway/runtimes/a%20b%3Fc/stop", "POST")
        outside = await ask(gw, "/gateway/runtimes/../stop", "POST")
        assert [what for what, _ in gw.daemon.asked] == ["stop a b?c"]
    assert (outside.status, outside.error["code"]) == (404, "runtime_unknown")
