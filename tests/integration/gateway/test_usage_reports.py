"""What workers tell the daemon of what requests cost: all of it, once, whoever is away meanwhile."""

import json
import signal
from pathlib import Path

import pytest

from core.api import RouteTable
from core.usage import UsageRow
from tests.fakes.daemon_socket import FakeDaemon
from tests.fakes.upstream import FakeUpstream
from tests.integration.gateway.harness import CHAT, chat, gateway, prepare_layout, raw_request, serve_app, target_of
from tests.integration.gateway.workers import workers
from tests.unit.gateway.tables import key, model, table

ADMIN = {"authorization": "Bearer admin-key"}
KEYS = (key("admin-key", scope="admin", name="boss"), key("client-key", name="alice"))


def one_model(engine: FakeUpstream) -> RouteTable:
    return table(model("m", target_of(engine)))


async def test_a_request_is_reported_under_the_names_of_its_key_and_model(tmp_path: Path) -> None:
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine), aliases=("x",)), keys=KEYS, allow_missing_auth=False)
        async with gateway(tmp_path, routes) as gw:
            for name in ("m", "x"):
                answer = await raw_request((gw.host, gw.port), CHAT, chat(name), {"x-api-key": "client-key"})
                assert answer.status == 200
            await raw_request((gw.host, gw.port), CHAT, chat("unknown"), {"x-api-key": "client-key"})
            await raw_request((gw.host, gw.port), CHAT, chat("m"), {"x-api-key": "wrong"})
            total = await gw.daemon.wait_usage(lambda sums: sums.requests >= 2)
    assert total == UsageRow(requests=2, prompt_tokens=2, completion_tokens=2)
    (report,) = gw.daemon.usage.values()
    assert [(row.key, row.model) for row in report.rows] == [("alice", "m")]


async def test_a_report_whose_answer_is_lost_comes_again_under_its_number(tmp_path: Path) -> None:
    async with FakeUpstream() as engine, gateway(tmp_path, one_model(engine)) as gw:
        gw.daemon.usage_answers_lost = 1
        await raw_request((gw.host, gw.port), CHAT, chat("m"))
        await gw.daemon.wait_usage(lambda sums: sums.requests == 1)
        await raw_request((gw.host, gw.port), CHAT, chat("m"))
        await gw.daemon.wait_usage(lambda sums: sums.requests == 2)
    assert sorted(sequence for _, sequence in gw.daemon.usage) == [1, 2]
    assert gw.daemon.usage_total.requests == 2


async def test_nothing_is_lost_while_the_daemon_is_away(tmp_path: Path) -> None:
    async with FakeUpstream() as engine, gateway(tmp_path, one_model(engine)) as gw:
        await raw_request((gw.host, gw.port), CHAT, chat("m"))
        await gw.daemon.wait_usage(lambda sums: sums.requests == 1)
        await gw.daemon.stop()
        for _ in range(3):
            assert (await raw_request((gw.host, gw.port), CHAT, chat("m"))).status == 200
        await gw.daemon.start()
        total = await gw.daemon.wait_usage(lambda sums: sums.requests >= 4)
    assert total.requests == 4


async def test_what_a_worker_could_not_hand_over_the_next_one_does(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with (
        FakeUpstream() as engine,
        FakeDaemon(layout.daemon_socket, table(model("m", target_of(engine)))) as daemon,
    ):
        async with serve_app(tmp_path) as address:
            await raw_request(address, CHAT, chat("m"))
            await daemon.stop()
        left = list(layout.gateway_state.glob("usage-*.json"))
        assert len(left) == 1 and left[0].stat().st_mode & 0o777 == 0o600
        assert layout.gateway_state.stat().st_mode & 0o777 == 0o700
        (layout.gateway_state / "usage-broken.json").write_bytes(b"{")
        await daemon.start()
        async with serve_app(tmp_path):
            await daemon.wait_usage(lambda sums: sums.requests == 1)
        assert list(layout.gateway_state.glob("usage-*.json")) == []
    assert daemon.usage_total.requests == 1


async def test_the_end_of_a_worker_hands_over_the_last_second(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with (
        FakeUpstream() as engine,
        FakeDaemon(layout.daemon_socket, table(model("m", target_of(engine)))) as daemon,
    ):
        async with workers(tmp_path, 1) as running:
            await running.wait_ready()
            for _ in range(20):
                await raw_request(running.address, CHAT, chat("m"))
            running.process.send_signal(signal.SIGTERM)
            await running.process.wait()
        assert daemon.usage_total.requests == 20
        assert len({source for source, _ in daemon.usage}) == 1
    assert list(layout.gateway_state.glob("usage-*.json")) == []


@pytest.mark.parametrize(
    ("headers", "status"), [(ADMIN, 200), ({"authorization": "Bearer client-key"}, 401), ({}, 401)]
)
async def test_only_an_administrator_sees_what_was_used(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    async with (
        FakeUpstream() as engine,
        gateway(tmp_path, table(model("m", target_of(engine)), keys=KEYS, allow_missing_auth=False)) as gw,
    ):
        path = "/gateway/usage?from=2026-01-01&key=alice&by=key&unknown=1"
        answer = await raw_request((gw.host, gw.port), path, method="GET", headers=headers)
    assert answer.status == status
    if status == 200:
        assert json.loads(answer.body)["rows"] == []
        assert gw.daemon.usage_asked == [{"from": "2026-01-01", "key": "alice", "by": "key"}]
