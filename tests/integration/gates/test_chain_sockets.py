"""A client's websocket through the gateway to ComfyUI's gate, as real processes."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from core.http.client import Unreachable
from core.paths import Layout
from tests.integration.gates.bench import Ear, long_picture, picture
from tests.integration.gates.test_chain import KEYS, Client, serving
from tests.integration.node.up import Up
from tests.rewriting import rewrite

_PATIENCE_S = 60.0
_PATH = "/v1/comfyui/org/art/ws"


def listen(session: aiohttp.ClientSession, up: Up, name: str, query: str = "", **more: str) -> Any:
    headers = {"Authorization": f"Bearer {KEYS[name]}", **more}
    return session.ws_connect(f"http://127.0.0.1:{up.port}{_PATH}{query}", headers=headers)


async def refusal(session: aiohttp.ClientSession, up: Up, name: str, query: str = "", **more: str) -> int:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await listen(session, up, name, query, **more)
    return refused.value.status


async def until_refused(session: aiohttp.ClientSession, up: Up, name: str) -> None:
    """Each worker learns of the change by itself."""
    async with asyncio.timeout(_PATIENCE_S):
        for _ in range(4):
            while True:
                try:
                    async with listen(session, up, name):
                        await asyncio.sleep(0.02)
                except aiohttp.WSServerHandshakeError as error:
                    assert error.status == 401
                    break


async def until_serving(up: Up, client: Client) -> None:
    """A client's kept connections may be to workers that are gone."""
    async with asyncio.timeout(_PATIENCE_S):
        await up.until_gateway(_PATIENCE_S)
        while True:
            with contextlib.suppress(Unreachable):
                await client.until("/v1/comfyui/org/art/queue", lambda told: "queue_running" in told)
                return


async def test_a_websocket_reaches_its_callers_gate_and_nobody_elses_prompts(tmp_path: Path) -> None:
    hold = tmp_path / "go"
    async with serving(tmp_path) as (up, _), aiohttp.ClientSession() as session:
        ada, bob = Client(up, "ada"), Client(up, "bob")
        async with listen(session, up, "ada", "?clientId=mine") as first, listen(session, up, "bob") as second:
            at_ada, at_bob = Ear(first), Ear(second)
            assert (await at_ada.until("status"))["data"]["sid"] == "mine"
            await at_bob.until("status")
            body = {"prompt": long_picture(hold), "client_id": "mine"}
            _, told = await ada.ask("POST", "/v1/comfyui/org/art/prompt", body)
            own = told["prompt_id"]
            await at_ada.until("progress")
            hold.touch()
            assert await at_ada.until_over(own) == "execution_success"
            # Another way to bring one, and the socket hears of it all the same.
            work = {"model": "org/art", "prompt": picture()}
            status, told = await bob.ask("POST", "/v1/workflows", work)
            assert (status, await at_bob.until_over(told["id"])) == (200, "execution_success")
            assert at_ada.prompts() == {own} and at_bob.prompts() == {told["id"]}
            assert at_ada.pictures and not at_bob.pictures

            for query in ("?clientId=a%20b", "?x=1", "?clientId=a&clientId=b"):
                assert await refusal(session, up, "ada", query) == 400
            assert await refusal(session, up, "ada", Origin="http://evil.example") == 403
            assert await refusal(session, up, "ada", **{"Sec-Fetch-Site": "cross-site"}) == 403
            assert await refusal(session, up, "ada", **{"Sec-WebSocket-Version": "8"}) == 400
            for headers in ({}, {"Authorization": "Bearer no"}):
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await session.ws_connect(f"http://127.0.0.1:{up.port}{_PATH}", headers=headers)
                assert refused.value.status == 401
            status, told = await ada.ask("GET", "/v1/comfyui/org/art/ws")
            assert (status, told["error"]["code"]) == (400, "websocket_expected")
            assert (await ada.ask("GET", "/v1/comfyui/nobody/ws"))[0] == 404


async def test_a_websocket_ends_with_its_gate_and_with_its_key(tmp_path: Path) -> None:
    async with serving(tmp_path) as (up, daemon), aiohttp.ClientSession() as session:
        ada = Client(up, "ada")
        async with listen(session, up, "ada") as first, listen(session, up, "bob") as second:
            for socket in (first, second):
                await Ear(socket).until("status")
            config = Layout.under(tmp_path).config
            rewrite(config, config.read_text().replace(f", {KEYS['bob']}", ""))
            message = await asyncio.wait_for(second.receive(), _PATIENCE_S)
            assert (message.type, second.close_code) == (aiohttp.WSMsgType.CLOSE, 1008)
            await until_refused(session, up, "bob")

            (gate,) = up.pids_with("engines.gates")
            os.kill(gate, signal.SIGKILL)
            message = await asyncio.wait_for(first.receive(), _PATIENCE_S)
            assert (message.type, first.close_code) == (aiohttp.WSMsgType.CLOSE, 1001)
            await up.until(lambda: up.pids_with("engines.gates") not in ([], [gate]), _PATIENCE_S)
            await ada.until("/v1/comfyui/org/art/queue", lambda told: "queue_running" in told)
        async with listen(session, up, "ada") as third:
            # A worker that ends waits for what it answers, and not for these.
            await Ear(third).until("status")
            for pid in up.gateway_pids()[1:]:
                os.kill(pid, signal.SIGTERM)
            message = await asyncio.wait_for(third.receive(), _PATIENCE_S)
            assert (message.type, third.close_code) == (aiohttp.WSMsgType.CLOSE, 1001)
        await until_serving(up, ada)
        async with listen(session, up, "ada") as again:
            await Ear(again).until("status")
            await daemon.stop_runtime("art")
            message = await asyncio.wait_for(again.receive(), _PATIENCE_S)
            assert (message.type, again.close_code) == (aiohttp.WSMsgType.CLOSE, 1001)


async def test_a_websocket_that_only_listens_keeps_no_runtime_loaded(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, ", idleStopMs: 2000") as (up, _),
        aiohttp.ClientSession() as session,
        listen(session, up, "ada") as socket,
    ):
        await Ear(socket).until("status")
        message = await asyncio.wait_for(socket.receive(), _PATIENCE_S)
        assert (message.type, socket.close_code) == (aiohttp.WSMsgType.CLOSE, 1001)
