"""The cancellation contract, in full: every endpoint, streaming or not, before or after the first byte, however left.

Real workers; one target with a single slot, so that a request which is served proves that the slot of the one before it
is free. Within a second the engine's request is closed (on a busy machine one may take longer, not most of them), and
in the end nothing is under way anywhere.
"""

import asyncio
import itertools
import json
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic

import pytest

from core.activity import ActivityReport
from tests.fakes.daemon_socket import FakeDaemon
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.harness import prepare_layout, raw_request, render_request, target_of
from tests.integration.gateway.workers import Workers, workers
from tests.patience import MOMENT_S, SOON_S
from tests.unit.gateway.tables import model, table

WITHIN_S = 1.0
MESSAGES = [{"role": "user", "content": "hi"}]


@dataclass(frozen=True)
class Endpoint:
    """A path, a body for it, and whether the engine speaks it or the answer is translated."""

    path: str
    body: dict[str, object]
    is_own: bool = True
    asked: str = "m"
    streams: bool = True


ENDPOINTS = {
    "chat": Endpoint("/v1/chat/completions", {"messages": MESSAGES}),
    "chat under an alias": Endpoint("/v1/chat/completions", {"messages": MESSAGES}, asked="alias"),
    "completions": Endpoint("/v1/completions", {"prompt": "hi"}),
    "embeddings": Endpoint("/v1/embeddings", {"input": "hi"}, streams=False),
    "messages": Endpoint("/v1/messages", {"messages": MESSAGES, "max_tokens": 9}),
    "messages, translated": Endpoint("/v1/messages", {"messages": MESSAGES, "max_tokens": 9}, is_own=False),
    "count_tokens": Endpoint("/v1/messages/count_tokens", {"messages": MESSAGES}, streams=False),
    "count_tokens, translated": Endpoint("/v1/messages/count_tokens", {"messages": MESSAGES}, False, streams=False),
    "responses": Endpoint("/v1/responses", {"input": "hi"}),
    "responses, translated": Endpoint("/v1/responses", {"input": "hi"}, is_own=False),
}
OWN = sorted({endpoint.path for endpoint in ENDPOINTS.values()})
CHAT_ONLY = ["/v1/chat/completions"]


def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _half_close(writer: asyncio.StreamWriter) -> None:
    writer.write_eof()


LEAVING: dict[str, Callable[[asyncio.StreamWriter], None]] = {
    "closes": _close, "resets": _reset, "half-closes": _half_close,
}  # fmt: skip


async def _leave_once(
    running: Workers, engine: FakeUpstream, endpoint: Endpoint, *, stream: bool, begun: bool, leaving: str
) -> float:
    """One request that is left; returns when the engine has heard of it, and how many seconds that took."""
    if begun:
        engine.behaviour = Behaviour(pieces=10_000, pause_s=0.05) if stream else Behaviour(tail_pause_s=60)
    else:
        engine.behaviour = Behaviour(head_pause_s=60)
    abandoned, halves = engine.abandoned, engine.halves
    reader, writer = await asyncio.open_connection(*running.address)
    body = json.dumps({"model": endpoint.asked, **endpoint.body, **({"stream": True} if stream else {})}).encode()
    writer.write(render_request(endpoint.path, body))
    async with asyncio.timeout(SOON_S):
        await engine.wait_for(lambda: engine.open == 1)
        if begun and stream:
            await reader.readuntil(b"w0 ")
        elif begun:
            await engine.wait_for(lambda: engine.halves > halves)
    left_s = monotonic()
    LEAVING[leaving](writer)
    async with asyncio.timeout(WITHIN_S + MOMENT_S):
        await engine.wait_for(lambda: engine.abandoned > abandoned)
    writer.close()
    return monotonic() - left_s


@pytest.mark.parametrize("name", ENDPOINTS)
async def test_a_client_that_leaves_frees_engine_and_slot_within_a_second(tmp_path: Path, name: str) -> None:
    endpoint = ENDPOINTS[name]
    async with FakeUpstream() as engine:
        routes = OWN if endpoint.is_own else CHAT_ONLY
        only = target_of(engine, max_concurrency=1, routes=routes)
        layout = prepare_layout(tmp_path)
        async with (
            FakeDaemon(layout.daemon_socket, table(model("m", only, aliases=("alias",)))) as daemon,
            workers(tmp_path, 2) as running,
        ):
            kinds = (True, False) if endpoint.streams else (False,)
            took_s = []
            for stream, begun, leaving in itertools.product(kinds, (False, True), LEAVING):
                combination = f"{stream=} {begun=} {leaving}"
                try:
                    took_s.append(
                        await _leave_once(running, engine, endpoint, stream=stream, begun=begun, leaving=leaving)
                    )
                except TimeoutError:
                    pytest.fail(f"{combination}: the engine was not told")
                assert engine.open == 0, combination
                engine.behaviour = Behaviour()
                body = json.dumps({"model": endpoint.asked, **endpoint.body}).encode()
                answer = await raw_request(running.address, endpoint.path, body)
                assert answer.status == 200, combination
            assert median(took_s) < WITHIN_S, took_s
            async with asyncio.timeout(SOON_S):
                await daemon.wait_reports(_nothing_is_under_way)


def _nothing_is_under_way(reports: list[ActivityReport]) -> bool:
    return bool(reports) and all(not each.active and not each.waiting for r in reports for each in r.runtimes.values())
