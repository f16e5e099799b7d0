"""What a daemon hears of the requests that its gateway carries."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from core.activity import REPORT_EVERY_S, ActivityReport, RuntimeActivity
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.harness import CHAT, chat, gateway, raw_request, render_request, target_of
from tests.unit.gateway.tables import model, table

SOON_S = 0.75 * REPORT_EVERY_S
"""Sooner than the report that comes anyway."""


def told(reports: list[ActivityReport], runtime: str = "t1") -> RuntimeActivity:
    """What the one worker said last; nothing yet is the same as nothing under way."""
    assert len(reports) <= 1
    return reports[0].runtimes.get(runtime, RuntimeActivity()) if reports else RuntimeActivity()


@pytest.mark.parametrize("name", ["m", "alias"], ids=["relayed", "renamed"])
async def test_the_daemon_hears_of_a_request_and_of_its_end(tmp_path: Path, name: str) -> None:
    async with (
        FakeUpstream(Behaviour(pieces=3, pause_s=60)) as engine,
        gateway(tmp_path, table(model("m", target_of(engine), aliases=("alias",)))) as gw,
    ):
        asking = asyncio.create_task(raw_request((gw.host, gw.port), CHAT, chat(name, stream=True)))
        await gw.daemon.wait_reports(lambda reports: told(reports).active == 1)
        engine.release()
        answer = await asking
        async with asyncio.timeout(SOON_S):
            await gw.daemon.wait_reports(lambda reports: told(reports).active == 0)
        last = told(list(gw.daemon.reports.values()))
    assert last.idle_s is not None and last.idle_s < SOON_S
    # The engine's own bytes: where they are edited, the client's are not so many.
    assert last.bytes_total > 0.9 * len(answer.body) > 100


async def test_the_daemon_hears_that_a_stream_stands_still(tmp_path: Path) -> None:
    async with (
        FakeUpstream(Behaviour(pieces=2, pause_s=30)) as engine,
        gateway(tmp_path, table(model("m", target_of(engine)))) as gw,
    ):
        _, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(CHAT, chat(stream=True)))
        async with asyncio.timeout(10):
            await gw.daemon.wait_reports(lambda reports: told(reports).stalled_s > 1.0)
        writer.close()
        async with asyncio.timeout(1 + SOON_S):
            await gw.daemon.wait_reports(lambda reports: told(reports).active == 0)


async def test_the_daemon_hears_by_which_table_requests_are_dispatched(tmp_path: Path) -> None:
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine)))
        async with gateway(tmp_path, routes) as gw:
            gw.daemon.publish(msgspec.structs.replace(routes, version=7))
            async with asyncio.timeout(SOON_S):
                await gw.daemon.wait_reports(lambda reports: bool(reports) and reports[0].version == 7)


async def test_a_daemon_that_comes_back_hears_what_is_under_way_at_once(tmp_path: Path) -> None:
    async with (
        FakeUpstream(Behaviour(head_pause_s=30)) as engine,
        gateway(tmp_path, table(model("m", target_of(engine)))) as gw,
    ):
        _, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(CHAT, chat()))
        await engine.wait_for(lambda: engine.open == 1)
        await gw.daemon.stop()
        gw.daemon.reports.clear()
        await gw.daemon.start()
        async with asyncio.timeout(4):
            await gw.daemon.wait_reports(lambda reports: told(reports).active == 1)
        writer.close()
