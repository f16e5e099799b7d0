"""`/v1/jobs` from outside: made, waited for, read, cancelled; by whom, and what happens when things go wrong."""

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from core.api import JobPolicy, RouteTable
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.harness import CHAT, Gateway, chat, gateway, raw_request, target_of
from tests.integration.gateway.jobs import JOBS, delete, get, job, post, until, wait_job
from tests.integration.gateway.sim import sim
from tests.unit.gateway.tables import key, model, table, target, unready


def at(gw: Gateway) -> tuple[str, int]:
    return gw.host, gw.port


def keyed(*models: object, **security: object) -> RouteTable:
    return table(*models, keys=(key("a"), key("b")), allow_missing_auth=False, **security)  # type: ignore[arg-type]


async def test_a_job_is_taken_done_and_its_result_is_what_the_route_would_have_answered(tmp_path: Path) -> None:
    async with FakeUpstream() as engine, gateway(tmp_path, table(model("m", target_of(engine)))) as gw:
        made = await post(at(gw))
        seen = await wait_job(at(gw), made["id"], "done")
        result = await get(at(gw), made["id"], "/result")
        direct = await raw_request(at(gw), CHAT, chat())
    assert (made["object"], made["state"], made["ahead"], made["path"], made["model"]) == (
        "job",
        "queued",
        0,
        CHAT,
        "m",
    )
    assert (seen["node"], seen["target"], seen["percent"], seen["tries"], seen["error"]) == ("n1", "t1", 100, 1, None)
    assert seen["result"] == json.loads(direct.body)
    assert (result.status, result.body) == (200, direct.body)
    assert result.headers["content-type"] == direct.headers["content-type"]
    assert all(seen[name] for name in ("created_at", "started_at", "finished_at", "expires_at"))


async def test_the_engine_gets_the_clients_own_bytes_and_no_sign_of_the_key(tmp_path: Path) -> None:
    body = b'{ "model" : "m", "messages": [], "odd": 1.00000000000000000001 }'
    async with FakeUpstream() as engine, gateway(tmp_path, keyed(model("m", target_of(engine)))) as gw:
        made = await post(at(gw), body, authorization="Bearer a")
        await wait_job(at(gw), made["id"], "done", authorization="Bearer a")
        sent = engine.seen[0]
    assert sent.body == body
    assert sha256(b"a").hexdigest() not in str(sent.headers).lower()
    assert not {name.lower() for name in sent.headers} & {"x-api-key", "authorization"}


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/v1/completions", "/v1/embeddings"])
async def test_other_routes_can_be_asked_too(tmp_path: Path, path: str) -> None:
    body = json.dumps({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "input": "hi"})
    async with FakeUpstream() as engine, gateway(tmp_path, table(model("m", target_of(engine)))) as gw:
        made = await post(at(gw), body.encode(), path)
        seen = await wait_job(at(gw), made["id"], "done")
        direct = json.loads((await raw_request(at(gw), path, body.encode())).body)
    assert isinstance(seen["result"], dict)
    assert seen["result"].keys() == direct.keys()


async def test_jobs_wait_for_their_turn_and_say_how_many_are_ahead(tmp_path: Path) -> None:
    async with (
        FakeUpstream(Behaviour(head_pause_s=30)) as engine,
        gateway(tmp_path, table(model("m", target_of(engine, max_concurrency=1)))) as gw,
    ):
        ids = [(await post(at(gw)))["id"] for _ in range(4)]
        first = await wait_job(at(gw), ids[0], "running")
        ahead = [json.loads((await get(at(gw), id_)).body)["ahead"] for id_ in ids]
        assert engine.open == 1
        listed = json.loads((await raw_request(at(gw), f"{JOBS}?limit=3", method="GET")).body)
        engine.release()
        for id_ in ids:
            await wait_job(at(gw), id_, "done")
    assert (first["node"], first["target"], first["ahead"], first["result_url"]) == ("n1", "t1", None, None)
    assert ahead == [None, 0, 1, 2]
    assert (listed["object"], [each["id"] for each in listed["data"]]) == ("list", ids[:0:-1])
    assert len(engine.seen) == 4


async def test_a_running_job_that_is_cancelled_is_closed_at_its_engine_within_a_second(tmp_path: Path) -> None:
    body = chat(max_tokens=100_000, sim={"tokens": 100_000, "tokensPerS": 50})
    async with sim(tmp_path / "e") as engine:
        routes = table(model("m", target(port=engine.port, key_file=str(engine.key_file))))
        async with gateway(tmp_path, routes) as gw:
            made = await post(at(gw), body)
            await engine.wait_open()
            answer = await delete(at(gw), made["id"])
            counts = await engine.stats(closed_early=1)
            again = await delete(at(gw), made["id"])
            gone = await get(at(gw), made["id"])
    assert (answer.status, json.loads(answer.body)["state"]) == (200, "cancelled")
    assert counts["closedEarly"] == 1
    assert (again.status, gone.status, gone.error["code"]) == (204, 404, "job_unknown")


async def test_a_job_that_still_waits_can_be_cancelled_and_is_never_asked(tmp_path: Path) -> None:
    async with (
        FakeUpstream(Behaviour(head_pause_s=30)) as engine,
        gateway(tmp_path, table(model("m", target_of(engine, max_concurrency=1)))) as gw,
    ):
        first, second = await post(at(gw)), await post(at(gw))
        await wait_job(at(gw), first["id"], "running")
        assert json.loads((await delete(at(gw), second["id"])).body)["state"] == "cancelled"
        engine.release()
        await wait_job(at(gw), first["id"], "done")
        third = await post(at(gw))
        await wait_job(at(gw), third["id"], "done")
    assert len(engine.seen) == 2


async def test_a_job_is_its_keys_alone(tmp_path: Path) -> None:
    async with FakeUpstream() as engine, gateway(tmp_path, keyed(model("m", target_of(engine)))) as gw:
        made = await post(at(gw), authorization="Bearer a")
        await wait_job(at(gw), made["id"], "done", authorization="Bearer a")
        foreign = [
            await get(at(gw), made["id"], x_api_key="b"),
            await get(at(gw), made["id"], "/result", x_api_key="b"),
        ]
        foreign += [await delete(at(gw), made["id"], x_api_key="b"), await get(at(gw), "job_never", x_api_key="b")]
        nobody = [await get(at(gw), made["id"]), await raw_request(at(gw), JOBS, job())]
        listed = [
            json.loads((await raw_request(at(gw), JOBS, headers={"x-api-key": name}, method="GET")).body)["data"]
            for name in ("a", "b")
        ]
        assert (await get(at(gw), made["id"], x_api_key="a")).status == 200
    assert {(answer.status, answer.body) for answer in foreign} == {(404, foreign[0].body)}
    assert {answer.status for answer in nobody} == {401}
    assert ([each["id"] for each in listed[0]], listed[1]) == ([made["id"]], [])


async def test_a_page_of_another_site_reads_no_results_where_no_key_is_asked_for(tmp_path: Path) -> None:
    async with gateway(tmp_path, table(model("m", target()))) as gw:
        for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
            for method in ("GET", "POST"):
                answer = await raw_request(at(gw), JOBS, job() if method == "POST" else b"", headers, method)
                assert (answer.status, answer.error["code"]) == (403, "admin_origin_denied")


async def test_an_engines_refusal_is_the_jobs_error(tmp_path: Path) -> None:
    refusal = b'{"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length"}}'
    async with (
        FakeUpstream(Behaviour(status=400, body=refusal)) as engine,
        gateway(tmp_path, table(model("m", target_of(engine)))) as gw,
    ):
        made = await post(at(gw))
        seen = await wait_job(at(gw), made["id"], "failed")
        result = await get(at(gw), made["id"], "/result")
    assert seen["error"] == {"message": "too long", "type": "invalid_request_error", "code": "context_length"}
    assert (result.status, result.error["code"]) == (400, "context_length")


@pytest.mark.parametrize("behaviour", [Behaviour(status=500), Behaviour(body=b"not json", headers={})])
async def test_an_engine_that_fails_or_talks_nonsense_harms_nobody_else(tmp_path: Path, behaviour: Behaviour) -> None:
    async with FakeUpstream(behaviour) as engine, gateway(tmp_path, table(model("m", target_of(engine)))) as gw:
        made = await post(at(gw))
        seen = await wait_job(at(gw), made["id"], "failed", "done")
        if seen["state"] == "done":
            assert seen["result"] is None
            assert (await get(at(gw), made["id"], "/result")).body == b"not json"
        engine.behaviour = Behaviour()
        await wait_job(at(gw), (await post(at(gw)))["id"], "done")


async def test_a_job_waits_for_a_model_that_is_being_loaded(tmp_path: Path) -> None:
    loading = table(model("m", unready("starting", request_startup_wait_ms=0)))
    async with FakeUpstream() as engine, gateway(tmp_path, loading) as gw:
        made = await post(at(gw))

        async def is_loading() -> bool:
            return bool(json.loads((await get(at(gw), made["id"])).body)["step"] == "model_loading")

        await until(is_loading)
        gw.daemon.publish(msgspec.structs.replace(table(model("m", target_of(engine))), version=2))
        seen = await wait_job(at(gw), made["id"], "done")
    assert seen["tries"] == 2


async def test_a_model_that_has_failed_fails_the_job_with_its_reason(tmp_path: Path) -> None:
    async with gateway(tmp_path, table(model("m", unready("failed", reason="exited with 1")))) as gw:
        made = await post(at(gw))
        seen = await wait_job(at(gw), made["id"], "failed")
    assert isinstance(seen["error"], dict)
    assert (seen["error"]["code"], "exited with 1" in seen["error"]["message"]) == ("runtime_failed", True)


async def test_a_stopped_node_keeps_its_jobs_until_it_serves_again(tmp_path: Path) -> None:
    async with FakeUpstream() as engine:
        stopped = table(model("m", target_of(engine)), serving=False)
        async with gateway(tmp_path, stopped) as gw:
            made = await post(at(gw))
            gw.daemon.publish(msgspec.structs.replace(stopped, version=2, serving=True))
            await wait_job(at(gw), made["id"], "done")


async def test_a_key_that_was_revoked_while_its_job_waited_opens_nothing(tmp_path: Path) -> None:
    async with FakeUpstream(Behaviour(head_pause_s=30)) as engine:
        routes = keyed(model("m", target_of(engine, max_concurrency=1)))
        async with gateway(tmp_path, routes) as gw:
            first, second = await post(at(gw), x_api_key="a"), await post(at(gw), x_api_key="b")
            await wait_job(at(gw), first["id"], "running", x_api_key="a")
            gw.daemon.publish(msgspec.structs.replace(routes, version=2, keys=[key("a")]))
            await until(lambda: opens(gw, "b", 401))
            engine.release()
            await wait_job(at(gw), first["id"], "done", x_api_key="a")
            # The key comes back, and with it the sight of what became of its job.
            await until(lambda: all_finished(tmp_path))
            gw.daemon.publish(msgspec.structs.replace(routes, version=3))
            await until(lambda: opens(gw, "b", 200))
            seen = await wait_job(at(gw), second["id"], "failed", x_api_key="b")
    assert isinstance(seen["error"], dict)
    assert (seen["error"]["code"], len(engine.seen)) == ("unauthorized", 1)


async def opens(gw: Gateway, name: str, status: int) -> bool:
    """Whether a key is answered so by now."""
    return (await raw_request(at(gw), JOBS, headers={"x-api-key": name}, method="GET")).status == status


async def all_finished(state: Path) -> bool:
    """As it is written: the key that could ask has gone."""
    with sqlite3.connect(next(state.rglob("jobs.db"))) as database:
        unfinished = database.execute("SELECT count(*) FROM jobs WHERE finished_s IS NULL").fetchone()[0]
    database.close()
    return bool(unfinished == 0)


async def test_no_file_holds_a_key_and_what_was_asked_is_gone_with_the_jobs_end(tmp_path: Path) -> None:
    secret = "sk-a-very-secret-key"
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine)), keys=(key(secret),), allow_missing_auth=False)
        async with gateway(tmp_path, routes) as gw:
            made = await post(at(gw), chat(note="a private question"), x_api_key=secret)
            await wait_job(at(gw), made["id"], "done", x_api_key=secret)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert secret.encode() not in kept
    assert b"a private question" not in kept


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "invalid_json"),
        (job(chat("nope")), 404, "unknown_model"),
        (job(path="/v1/jobs"), 400, "job_path_unknown"),
        (job(chat(stream=True)), 400, "invalid_request"),
    ],
)
async def test_what_can_never_be_done_is_refused_at_once(tmp_path: Path, body: bytes, status: int, code: str) -> None:
    async with gateway(tmp_path, table(model("m", target()))) as gw:
        answer = await raw_request(at(gw), JOBS, body)
        assert not list(tmp_path.rglob("jobs.db"))
    assert (answer.status, answer.error["code"]) == (status, code)


@pytest.mark.parametrize("limit", ["0", "1001", "x", "-1", "9" * 5000, "%C2%B2"])
async def test_a_limit_that_is_none_is_a_400(tmp_path: Path, limit: str) -> None:
    async with gateway(tmp_path, table()) as gw:
        assert (await raw_request(at(gw), f"{JOBS}?limit={limit}", method="GET")).status == 400


@pytest.mark.parametrize("job_id", ["job_never", "..", "%00", "x" * 5000, "%27%20OR%201=1--"])
async def test_an_id_that_is_none_is_unknown(tmp_path: Path, job_id: str) -> None:
    async with FakeUpstream() as engine, gateway(tmp_path, table(model("m", target_of(engine)))) as gw:
        await post(at(gw))
        for answer in (await get(at(gw), job_id), await delete(at(gw), job_id)):
            assert (answer.status, answer.error["code"]) == (404, "job_unknown")


async def test_a_key_may_have_so_many_and_an_operator_may_allow_none(tmp_path: Path) -> None:
    async with FakeUpstream(Behaviour(head_pause_s=30)) as engine:
        routes = msgspec.structs.replace(table(model("m", target_of(engine))), jobs=JobPolicy(max_per_key=2))
        async with gateway(tmp_path, routes) as gw:
            ids = [(await post(at(gw)))["id"] for _ in range(2)]
            full = await raw_request(at(gw), JOBS, job())
            await delete(at(gw), ids[0])
            await post(at(gw))
            gw.daemon.publish(msgspec.structs.replace(routes, version=2, jobs=JobPolicy(max_per_key=0)))

            async def is_off() -> bool:
                return (await raw_request(at(gw), JOBS, job())).error["code"] != "too_many_jobs"

            await until(is_off)
            none = await raw_request(at(gw), JOBS, job())
            engine.release()
    assert (full.status, full.error["code"], "retry-after" in full.headers) == (429, "too_many_jobs", True)
    assert (none.status, none.error["code"]) == (403, "jobs_disabled")


async def test_what_was_kept_for_long_enough_is_gone(tmp_path: Path) -> None:
    async with FakeUpstream() as engine:
        short = msgspec.structs.replace(table(model("m", target_of(engine))), jobs=JobPolicy(keep_minutes=0))
        async with gateway(tmp_path, table(model("m", target_of(engine)))) as gw:
            made = await post(at(gw))
            await wait_job(at(gw), made["id"], "done")
        async with gateway(tmp_path, short) as gw:

            async def is_gone() -> bool:
                return (await get(at(gw), made["id"])).status == 404

            await until(is_gone)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.root
async def test_a_full_disk_takes_no_job_and_stops_nothing_else(small_disk: Path) -> None:
    async with FakeUpstream() as engine, gateway(small_disk, table(model("m", target_of(engine)))) as gw:
        made = await post(at(gw))
        await wait_job(at(gw), made["id"], "done")
        answer = await raw_request(at(gw), JOBS, job(chat(filler="x" * (3 << 20))))
        direct = await raw_request(at(gw), CHAT, chat())
        engine.behaviour = Behaviour(body=b'{"big": "%b"}' % (b"x" * (3 << 20)))
        large = await post(at(gw))
        seen = await wait_job(at(gw), large["id"], "failed")
        engine.behaviour = Behaviour()
        again = await wait_job(at(gw), (await post(at(gw)))["id"], "done")
    assert (answer.status, answer.error["code"]) == (503, "job_store_full")
    assert direct.status == 200
    assert isinstance(seen["error"], dict)
    assert (seen["error"]["code"], again["state"]) == ("job_result_not_kept", "done")


async def test_a_job_that_runs_when_the_gateway_stops_begins_again_when_it_is_back(tmp_path: Path) -> None:
    async with FakeUpstream(Behaviour(head_pause_s=30)) as engine:
        routes = table(model("m", target_of(engine, max_concurrency=1)))
        async with gateway(tmp_path, routes) as gw:
            first, second = await post(at(gw)), await post(at(gw))
            await wait_job(at(gw), first["id"], "running")
        engine.behaviour = Behaviour()
        async with gateway(tmp_path, routes) as gw:
            seen = [await wait_job(at(gw), each["id"], "done") for each in (first, second)]
    assert [each["tries"] for each in seen] == [2, 1]
