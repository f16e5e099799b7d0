"""Somebody else's service as a target: what it is told, what a client hears of it, and how it fails.

The service is a real one, behind TLS with a certificate of an authority of its own.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from core.activity import BackendActivity
from core.api import BackendStatus, RouteTarget
from gateway import renamed
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.harness import (
    CHAT,
    Answer,
    Gateway,
    chat,
    gateway,
    raw_request,
    read_answer,
    render_request,
    target_of,
)
from tests.unit.gateway.tables import key, model, table

TLS_DATA = Path(__file__).resolve().parents[2] / "data" / "tls"
KEY = "sk-" + "provider-key-0123456789"
CLIENTS_KEY = "sk-" + "clients-key-0123456789"
WORDS = "Incorrect API key provided: sk-prov*****6789, organization org-1234"
TELLTALE = {
    "openai-organization": "org-1234",
    "x-ratelimit-remaining-requests": "3",
    "set-cookie": "a=b",
    "location": "https://elsewhere.example.org/",
}
FROM_A_CLIENT = {
    "authorization": f"Bearer {CLIENTS_KEY}",
    "cookie": "session=1",
    "user-agent": "client/1",
    "openai-organization": "org-mine",
    "x-llmgw-request-class": "interactive",
    "x-forwarded-for": "198.51.100.7",
    "x-stainless-os": "Linux",
    "content-type": "application/json",
}


@dataclass
class Bench:
    """A gateway, a provider, and an engine beside it."""

    gateway: Gateway
    provider: FakeUpstream
    engine: FakeUpstream

    async def ask(self, model_id: str = "m", /, **fields: object) -> Answer:
        return await self.post(CHAT, model_id, fields)

    async def post(self, path: str, model_id: str, fields: Mapping[str, object]) -> Answer:
        body: dict[str, object] = {"model": model_id, "messages": [{"role": "user", "content": "hi"}], **fields}
        return await raw_request(self.address, path, json.dumps(body).encode(), FROM_A_CLIENT)

    @property
    def address(self) -> tuple[str, int]:
        return self.gateway.host, self.gateway.port

    async def get(self, path: str) -> bytes:
        return (await raw_request(self.address, path, b"", FROM_A_CLIENT, "GET")).body

    async def wait_told(self, standing: str) -> BackendActivity:
        """What the daemon hears of the provider, once it stands like this."""
        reports = self.gateway.daemon.reports
        async with asyncio.timeout(30):
            await self.gateway.daemon.wait_reports(
                lambda told: any(one.backends.get("p", BackendActivity()).standing == standing for one in told)
            )
        return next(report.backends["p"] for report in reports.values())


def backend(provider: FakeUpstream, folder: Path, **changes: object) -> RouteTarget:
    """The provider as the daemon describes it."""
    fields: dict[str, object] = {
        "id": "backend:p", "backend": "p", "host": "localhost", "port": provider.port, "tls": True,
        "ca_file": str(TLS_DATA / "authority.pem"), "base_path": "/api/v1", "ready": True, "state": "ready",
        "key_file": str(folder / "p.key"), "upstream_model": "org/big", "usage_when_asked": True,
        "max_concurrency": 64, "routes": [CHAT, "/v1/embeddings", "/v1/audio/transcriptions"],
    }  # fmt: skip
    return RouteTarget(**(fields | changes))  # type: ignore[arg-type]


@asynccontextmanager
async def bench(
    folder: Path,
    behaviour: Behaviour | None = None,
    certificate: str = "provider",
    slots: int = 256,
    asleep: bool = False,
    **changes: object,
) -> AsyncIterator[Bench]:
    """The model `m` is the provider's, `near` the engine's, and `both` is of both; the engine has so many slots."""
    (folder / "p.key").write_text(f"{KEY}\n")
    async with (
        FakeUpstream(behaviour, certificate=TLS_DATA / f"{certificate}.pem") as provider,
        FakeUpstream() as engine,
    ):
        far, near = backend(provider, folder, **changes), target_of(engine, "n1/r", max_concurrency=slots)
        if asleep:
            near = msgspec.structs.replace(near, ready=False, state="stopped", request_startup_wait_ms=60_000)
        models = (model("m", far), model("both", far, near), model("near", near))
        async with gateway(folder, table(*models, keys=(key(CLIENTS_KEY, "admin"),))) as served:
            yield Bench(served, provider, engine)


async def test_a_provider_is_told_what_is_asked_and_nothing_of_who_asks(tmp_path: Path) -> None:
    async with bench(tmp_path) as at:
        answer = await at.ask(user="u-1", temperature=0.5)
    assert answer.status == 200
    assert answer.headers["x-llmgw-target"] == "backend:p"
    assert json.loads(answer.body)["model"] == "m"
    (seen,) = at.provider.seen
    assert seen.path == "/api/v1/chat/completions"
    assert json.loads(seen.body) == {
        "model": "org/big", "messages": [{"role": "user", "content": "hi"}], "user": "u-1", "temperature": 0.5,
    }  # fmt: skip
    headers = {name.lower(): value for name, value in seen.headers.items()}
    assert headers.pop("authorization") == f"Bearer {KEY}"
    assert headers.pop("host") == f"localhost:{at.provider.port}"
    assert headers.pop("user-agent").startswith("llmgw/")
    assert set(headers) == {"content-type", "content-length"}


async def test_a_stream_comes_under_the_clients_name_and_hides_what_only_we_asked_for(tmp_path: Path) -> None:
    async with bench(tmp_path, Behaviour(model="org/big-2026-01-01")) as at:
        answer = await at.ask(stream=True)
    events = [json.loads(line[6:]) for line in answer.body.decode().splitlines() if line.startswith("data: {")]
    assert {event["model"] for event in events} == {"m"}
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert json.loads(at.provider.seen[0].body)["stream_options"] == {"include_usage": True}


OTHER_PATHS: list[tuple[str, dict[str, object], str]] = [
    ("/v1/embeddings", {"input": "hi"}, "/api/v1/embeddings"),
    ("/v1/messages", {"max_tokens": 9}, "/api/v1/chat/completions"),
    ("/v1/responses", {"input": "hi"}, "/api/v1/chat/completions"),
]


@pytest.mark.parametrize(("path", "fields", "asked"), OTHER_PATHS)
async def test_other_paths_are_passed_on_or_translated(
    tmp_path: Path, path: str, fields: dict[str, object], asked: str
) -> None:
    async with bench(tmp_path) as at:
        answer = await at.post(path, "m", fields)
    assert answer.status == 200, answer.body
    assert json.loads(answer.body)["model"] == "m"
    assert [seen.path for seen in at.provider.seen] == [asked]


SOUND = b"\xff\xfb" + b'data: {"model": "org/big"}\n\n' * 1000


async def test_what_is_no_json_passes_as_it_is_while_it_comes(tmp_path: Path) -> None:
    how = Behaviour(headers={"content-type": "audio/mpeg"}, body=SOUND, tail_pause_s=60)
    async with bench(tmp_path, how, routes=["/v1/audio/speech"]) as at, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(*at.address)
        body = json.dumps({"model": "m", "input": "hi"}).encode()
        writer.write(render_request("/v1/audio/speech", body, FROM_A_CLIENT | {"connection": "close"}))
        head = await reader.readuntil(b"\r\n\r\n")
        early = await reader.readexactly(1000)
        at.provider.release()
        answer = read_answer(head + early + await reader.read())
        writer.close()
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, "audio/mpeg", SOUND)


async def test_sound_that_breaks_off_is_not_whole_and_nothing_is_added_to_it(tmp_path: Path) -> None:
    how = Behaviour(headers={"content-type": "audio/mpeg"}, body=SOUND, tail_pause_s=60)
    async with bench(tmp_path, how, routes=["/v1/audio/speech"]) as at, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(*at.address)
        writer.write(render_request("/v1/audio/speech", b'{"model": "m"}', FROM_A_CLIENT))
        await reader.readuntil(b"\r\n\r\n")
        await at.provider.stop()
        rest = await reader.read()
        writer.close()
    assert not rest.endswith(b"0\r\n\r\n")
    assert b"error" not in rest


REFUSALS: list[tuple[int, dict[str, str], int, str, str]] = [
    (401, {}, 502, "upstream_unauthorized", ""),
    (402, {}, 502, "upstream_unauthorized", ""),
    (403, {}, 502, "upstream_unauthorized", ""),
    (429, {"retry-after": "17"}, 429, "upstream_busy", "17"),
    (503, {}, 503, "upstream_busy", "2"),
    (529, {"retry-after": "4"}, 503, "upstream_busy", "4"),
    (500, {}, 502, "upstream_failed", "2"),
    (521, {}, 502, "upstream_failed", "2"),
    (307, {}, 502, "upstream_failed", "2"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "fields", "told", "code", "retry_after"), REFUSALS)
async def test_what_a_provider_says_of_our_account_is_told_in_our_own_words(  # noqa: PLR0913 - a table's columns
    tmp_path: Path, status: int, fields: dict[str, str], told: int, code: str, retry_after: str, stream: bool
) -> None:
    body = json.dumps({"error": {"message": WORDS}}).encode()
    async with bench(tmp_path, Behaviour(status, TELLTALE | fields, body)) as at:
        answer = await at.ask(stream=stream)
    assert (answer.status, answer.error["code"]) == (told, code)
    assert answer.headers.get("retry-after", "") == retry_after
    assert "org-1234" not in f"{answer.headers} {answer.body!r}"


async def test_what_is_wrong_with_the_request_itself_is_the_clients_to_know(tmp_path: Path) -> None:
    body = b'{"error": {"message": "temperature must be below 2"}}'
    async with bench(tmp_path, Behaviour(400, TELLTALE, body)) as at:
        answer = await at.ask(temperature=9)
    assert (answer.status, json.loads(answer.body)) == (400, json.loads(body))
    assert not {"openai-organization", "x-ratelimit-remaining-requests", "location"} & set(answer.headers)


@pytest.mark.parametrize("status", [401, 403, 429, 503, 500])
async def test_where_a_provider_refuses_another_target_answers(tmp_path: Path, status: int) -> None:
    async with bench(tmp_path, Behaviour(status, {"retry-after": "30"})) as at:
        answers = [await at.ask("both", messages=[{"role": "user", "content": f"{n}"}]) for n in range(8)]
    assert [answer.status for answer in answers] == [200] * 8
    assert {answer.headers["x-llmgw-target"] for answer in answers} == {"n1/r"}
    assert at.provider.seen


async def test_where_the_provider_refuses_and_the_engine_is_full_a_request_waits(tmp_path: Path) -> None:
    async with bench(tmp_path, Behaviour(429, {"retry-after": "30"}), slots=1) as at, asyncio.timeout(60):
        at.engine.behaviour = Behaviour(head_pause_s=60)
        first = asyncio.ensure_future(at.ask("near"))
        await at.engine.wait_for(lambda: at.engine.open == 1)
        second = asyncio.ensure_future(at.ask("both"))
        await at.gateway.daemon.wait_reports(
            lambda told: any("n1/r" in each.runtimes and each.runtimes["n1/r"].waiting == 1 for each in told)
        )
        at.engine.release()
        answers = [await first, await second]
    assert [(each.status, each.headers["x-llmgw-target"]) for each in answers] == [(200, "n1/r")] * 2


async def test_a_runtime_that_nobody_needed_is_started_when_the_provider_fails(tmp_path: Path) -> None:
    async with bench(tmp_path, asleep=True) as at, asyncio.timeout(60):
        daemon, before = at.gateway.daemon, at.gateway.daemon.table
        assert before is not None
        assert (await at.ask("both")).headers["x-llmgw-target"] == "backend:p"
        assert daemon.starts == []
        await at.provider.stop()
        asking = asyncio.ensure_future(at.ask("both"))
        await daemon.started.wait()
        both = model("both", backend(at.provider, tmp_path), target_of(at.engine, "n1/r"))
        daemon.publish(msgspec.structs.replace(before, version=2, models=[both]))
        answer = await asking
    assert (answer.status, answer.headers["x-llmgw-target"]) == (200, "n1/r")
    assert [started for started, _ in daemon.starts] == ["n1/r"]


async def test_a_provider_that_is_full_rests_for_as_long_as_it_says(tmp_path: Path) -> None:
    async with bench(tmp_path, Behaviour(429, {"retry-after": "30"})) as at:
        await at.ask()
        told = await at.wait_told("resting")
    assert told.error == "busy, status 429"


async def test_a_provider_that_dies_leaves_the_model_to_the_engine(tmp_path: Path) -> None:
    async with bench(tmp_path) as at:
        assert (await at.ask()).status == 200
        await at.provider.stop()
        answers = [await at.ask("both", messages=[{"role": "user", "content": f"{n}"}]) for n in range(6)]
        alone = await at.ask()
        told = await at.wait_told("out")
    assert [answer.status for answer in answers] == [200] * 6
    assert (alone.status, alone.error["code"]) == (502, "upstream_unreachable")
    assert told.error.startswith(("connect failed", "closed early"))


@pytest.mark.parametrize(
    ("certificate", "words"),
    [("provider-expired", "certificate has expired"), ("provider-elsewhere", "not valid for 'localhost'")],
)
async def test_a_certificate_that_is_not_good_is_named_to_the_operator_only(
    tmp_path: Path, certificate: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with bench(tmp_path, certificate=certificate) as at:
        answer = await at.ask()
        told = await at.wait_told("out")
    assert (answer.status, answer.error["code"]) == (502, "upstream_unreachable")
    assert "certificate" not in answer.error["message"]
    assert words in told.error and at.provider.seen == []
    line = next(line for line in capfd.readouterr().err.splitlines() if "target_ejected" in line)
    assert words in line


async def test_a_client_that_leaves_ends_the_providers_request(tmp_path: Path) -> None:
    async with bench(tmp_path, Behaviour(pieces=1000, pause_s=30)) as at, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(*at.address)
        writer.write(render_request(CHAT, chat("m", stream=True), FROM_A_CLIENT))
        await reader.readuntil(b"w0")
        writer.transport.abort()
        await at.provider.wait_for(lambda: at.provider.abandoned == 1)
        await at.gateway.daemon.wait_reports(
            lambda told: any("p" in one.backends and not one.backends["p"].active for one in told)
        )


async def test_no_more_requests_at_once_than_are_allowed(tmp_path: Path) -> None:
    async with bench(tmp_path, Behaviour(head_pause_s=60), max_concurrency=1) as at, asyncio.timeout(60):
        asking = [asyncio.ensure_future(at.ask(model_id)) for model_id in ("m", "m")]
        await at.gateway.daemon.wait_reports(
            lambda told: any("p" in each.backends and each.backends["p"].waiting == 1 for each in told)
        )
        assert len(at.provider.seen) == 1
        at.provider.release()
        assert [(await each).status for each in asking] == [200, 200]


async def test_a_backend_that_is_switched_off_is_said_to_be(tmp_path: Path) -> None:
    async with bench(tmp_path, ready=False, state="disabled") as at:
        answer = await at.ask()
        other = await at.ask("both")
    assert (answer.status, answer.error["code"]) == (503, "backend_disabled")
    assert "retry-after" not in answer.headers
    assert (other.status, other.headers["x-llmgw-target"]) == (200, "n1/r")


async def test_state_routes_tell_of_backends_and_no_secret_of_them(tmp_path: Path) -> None:
    async with bench(tmp_path) as at:
        status = BackendStatus(id="p", state="ready", base_url="https://internal.example.org/v1", key_from="P_KEY")
        at.gateway.daemon.state = msgspec.structs.replace(at.gateway.daemon.state, backends=[status])
        routing = json.loads(await at.get("/gateway/routing"))
        models = json.loads(await at.get("/gateway/models"))["models"]
        told = [json.loads(await at.get(f"/gateway/{name}")) for name in ("status", "node")]
    targets = {entry["id"]: entry["targets"] for entry in routing["models"]}
    assert [(each["name"], each["runtime"], each["backend"]) for each in targets["both"]] == [
        ("p", None, "p"),
        ("n1/r", "n1/r", None),
    ]
    assert [entry["targets"] for entry in models][1] == [
        {"id": "p", "backend": "p", "weight": 1, "ready": True},
        {"id": "n1/r", "runtime": "n1/r", "weight": 1, "ready": True},
    ]
    (backend_row,) = told[0]["backends"]
    assert told[1]["node"]["backends"] == [backend_row]
    assert backend_row["state"] == "ready"
    assert not {"baseUrl", "keyFrom"} & set(backend_row)


@contextmanager
def _broken_edit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Replaced, because nothing that a client can send makes it fail: it stands for a fault of ours.
    def fail(body: bytes, name: str) -> bytes:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patched:
        patched.setattr(renamed, "rename_model", fail)
        yield


async def test_a_fault_of_ours_gives_its_slot_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(tmp_path, max_concurrency=1) as at:
        with _broken_edit(monkeypatch):
            assert (await at.ask()).status == 500
        assert (await at.ask()).status == 200


async def test_the_key_is_in_its_file_and_in_the_request_and_nowhere_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with bench(tmp_path) as at:
        answers = [await at.ask(), await at.ask("both"), await at.ask("nothing")]
        at.provider.behaviour = Behaviour(401, {}, WORDS.encode())
        answers.append(await at.ask())
        await at.provider.stop()
        answers.append(await at.ask())
        shown = [
            await at.get(path)
            for path in (
                "/metrics", "/gateway/metrics", "/gateway/routing", "/gateway/models", "/gateway/node",
                "/gateway/status", "/v1/models", "/openapi.json",
            )
        ]  # fmt: skip
    logged = capfd.readouterr()
    assert [seen.headers["Authorization"] for seen in at.provider.seen][0] == f"Bearer {KEY}"
    for text in (*shown, *(f"{answer.headers} {answer.body!r}".encode() for answer in answers)):
        assert KEY.encode() not in text
    assert KEY not in logged.out + logged.err
    holders = [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert holders == [tmp_path / "p.key"]
