"""What the gateway knows when the daemon comes, goes, stalls and returns."""

import asyncio
import json
import stat
from pathlib import Path

import msgspec

from core.api import RouteTable
from core.client import DaemonClient
from core.clock import SystemClock
from core.http.pool import UpstreamPool
from core.log import get_logger
from gateway.board import open_seat
from gateway.loads import Loads
from gateway.snapshot import SnapshotFile
from gateway.state import RouteState
from tests.fakes.daemon_socket import FakeDaemon
from tests.fakes.upstream import FakeUpstream
from tests.integration.gateway.harness import (
    CHAT,
    chat,
    gateway,
    prepare_layout,
    raw_request,
    serve_app,
    target_of,
    wait_saved,
)
from tests.patience import SOON_S
from tests.unit.gateway.tables import key, model, table, target


async def test_the_last_table_serves_while_the_daemon_is_away(tmp_path: Path) -> None:
    async with FakeUpstream() as engine, gateway(tmp_path, table(model("m", target_of(engine)))) as gw:
        await gw.daemon.stop()
        assert (await raw_request((gw.host, gw.port), CHAT, chat())).status == 200
        assert (await raw_request((gw.host, gw.port), "/health/ready", method="GET")).status == 200


async def test_a_daemon_that_returns_is_followed_again(tmp_path: Path) -> None:
    async with gateway(tmp_path, table(model("m", target()))) as gw:
        await gw.daemon.stop()
        gw.daemon.table = RouteTable(version=7, epoch="e2", node="n1", models=[model("other", target())])
        async with asyncio.timeout(SOON_S):
            await gw.daemon.start()
            await wait_saved(gw.layout, 7)
        listed = json.loads((await raw_request((gw.host, gw.port), "/v1/models", method="GET")).body)
    assert [each["id"] for each in listed["data"]] == ["other"]


async def test_a_gateway_that_starts_without_a_daemon_serves_from_the_file(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with FakeUpstream() as engine:
        SnapshotFile(layout.gateway_state).write(table(model("m", target_of(engine))))
        async with serve_app(tmp_path) as address:
            assert (await raw_request(address, CHAT, chat())).status == 200


async def test_the_file_is_private_and_holds_no_key(tmp_path: Path) -> None:
    engine_key = tmp_path / "engine.key"
    engine_key.write_text("engine-secret")
    routes = table(model("m", target(key_file=str(engine_key))), keys=(key("client-secret"),))
    async with gateway(tmp_path, routes) as gw:
        await wait_saved(gw.layout, 1)
        path = gw.layout.gateway_state / "routes.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert b"secret" not in path.read_bytes()


async def test_broken_files_are_treated_as_absent(tmp_path: Path) -> None:
    file = SnapshotFile(tmp_path)
    for content in (b"", b"{", b"[]", b"null", b'{"version":"x"}', b"\xff" * 100, b"[" * 100_000):
        file.path.write_bytes(content)
        assert file.read() is None


async def test_a_state_directory_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    layout.gateway_state.parent.mkdir(parents=True)
    layout.gateway_state.write_text("a file where the directory should be")
    async with gateway(tmp_path, table(model("m", target()))) as gw:
        assert (await raw_request((gw.host, gw.port), "/v1/models", method="GET")).status == 200


async def test_garbage_from_the_daemons_socket_changes_nothing_and_is_survived(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    SnapshotFile(layout.gateway_state).write(table(model("m", target())))

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\n\r\n{"version": "what"}\n')
        writer.close()

    server = await asyncio.start_unix_server(babble, layout.daemon_socket)
    async with serve_app(tmp_path) as address:
        assert (await raw_request(address, "/v1/models", method="GET")).status == 200
        server.close()
        await server.wait_closed()
        layout.daemon_socket.unlink(missing_ok=True)
        async with FakeDaemon(layout.daemon_socket, msgspec.structs.replace(table(), epoch="e2", version=7)) as daemon:
            async with asyncio.timeout(SOON_S):
                await daemon.wait_followers(1)
                await wait_saved(layout, 7)


async def test_a_daemon_that_accepts_and_says_nothing_is_waited_for_with_a_bound(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    snapshot = SnapshotFile(layout.gateway_state)
    snapshot.write(table(model("m", target())))
    async with FakeDaemon(layout.daemon_socket, None), DaemonClient(layout.daemon_socket) as client:
        state = RouteState(client, snapshot, UpstreamPool(), Loads(SystemClock(), open_seat({})), get_logger("test"))
        async with asyncio.TaskGroup() as group:
            following = group.create_task(state.run())
            await state.prepare(0.2)
            following.cancel()
    assert state.routes is not None and "m" in state.routes.lookup.models


async def test_keys_of_engines_are_read_anew_with_every_table(tmp_path: Path) -> None:
    engine_key = tmp_path / "engine.key"
    engine_key.write_text("one")
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine, key_file=str(engine_key))))
        async with gateway(tmp_path, routes) as gw:
            await raw_request((gw.host, gw.port), CHAT, chat())
            engine_key.write_text("two")
            gw.daemon.publish(msgspec.structs.replace(routes, version=2))
            await wait_saved(gw.layout, 2)
            await raw_request((gw.host, gw.port), CHAT, chat())
    assert [seen.headers["Authorization"] for seen in engine.seen] == ["Bearer one", "Bearer two"]


async def test_a_key_file_that_is_missing_or_odd_sends_no_key(tmp_path: Path) -> None:
    odd = tmp_path / "odd.key"
    odd.write_bytes(b"a\r\nx-evil: 1")
    async with FakeUpstream() as engine:
        targets = [target_of(engine, "a", key_file=str(odd)), target_of(engine, "b", key_file=str(tmp_path / "none"))]
        async with gateway(tmp_path, table(model("m", *targets))) as gw:
            for _ in range(2):
                assert (await raw_request((gw.host, gw.port), CHAT, chat())).status == 200
    assert not any("Authorization" in seen.headers or "X-Evil" in seen.headers for seen in engine.seen)
