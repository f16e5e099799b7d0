"""Certificates that are renewed, moved, broken and mended while the gateway serves: real workers, real TLS clients."""

import asyncio
import os
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from core.activity import ActivityReport
from core.api import RouteTable
from tests.fakes.daemon_socket import FakeDaemon
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.certificates import (
    TLS,
    ask_over_tls,
    meeting,
    place,
    secured,
    served_name,
    trusting,
)
from tests.integration.gateway.harness import CHAT, chat, prepare_layout, raw_request, render_request, target_of
from tests.integration.gateway.workers import READY_S, Workers, workers
from tests.unit.gateway.tables import model, table

WORKERS = 2
_IN_A_ROW = 12
"""New connections that must all be alike before every worker is taken to have followed."""


@dataclass
class Scene:
    directory: Path
    routes: RouteTable
    engine: FakeUpstream
    daemon: FakeDaemon
    running: Workers

    async def wait_served(self, name: str) -> None:
        """Return once all new connections are shown this certificate."""
        await self._wait_in_a_row(lambda: self._shows(name))

    async def wait_plain(self) -> None:
        """Return once all new connections speak plain HTTP."""
        await self._wait_in_a_row(self._is_plain)

    async def _shows(self, name: str) -> bool:
        try:
            return await served_name(self.running.address) == name
        except (OSError, ssl.SSLError):
            return False

    async def _is_plain(self) -> bool:
        try:
            return (await raw_request(self.running.address, "/health", method="GET")).status == 200
        except (OSError, IndexError, ValueError):
            return False

    async def _wait_in_a_row(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(READY_S):
            alike = 0
            while alike < _IN_A_ROW:
                alike = alike + 1 if await holds() else 0
                await asyncio.sleep(0.01)

    async def wait_complaint(self, words: str) -> None:
        """Return once every worker told the daemon of this; empty: of nothing any more."""

        def told(reports: list[ActivityReport]) -> bool:
            living = {str(pid) for pid in self.running.children()}
            complaints = [report.complaint for report in reports if report.source.partition("-")[0] in living]
            return len(complaints) == WORKERS and all(words in each if words else not each for each in complaints)

        async with asyncio.timeout(READY_S):
            await self.daemon.wait_reports(told)

    def publish(self, **policy: object) -> None:
        version = (self.daemon.table.version if self.daemon.table is not None else 0) + 1
        self.daemon.publish(msgspec.structs.replace(meeting(self.routes, **policy), version=version))

    async def answers(self, *names: str) -> None:
        """A client that believes these is answered."""
        answer = await ask_over_tls(
            self.running.address, trusting(*names), render_request(CHAT, chat(), {"connection": "close"})
        )
        assert answer.status == 200


@asynccontextmanager
async def scene(
    directory: Path, behaviour: Behaviour | None = None, *, activated: bool = True, plain: bool = False
) -> AsyncIterator[Scene]:
    place(directory, "first")
    async with FakeUpstream(behaviour) as engine:
        routes = table(model("m", target_of(engine))) if plain else secured(directory, engine)
        async with (
            FakeDaemon(prepare_layout(directory).daemon_socket, routes) as daemon,
            workers(directory, WORKERS, tls=None if plain else trusting("first"), activated=activated) as running,
        ):
            await daemon.wait_followers(WORKERS)
            yield Scene(directory, routes, engine, daemon, running)


@pytest.mark.parametrize("activated", [True, False])
async def test_a_renewed_certificate_is_served_without_anybody_doing_anything(tmp_path: Path, activated: bool) -> None:
    async with scene(tmp_path, Behaviour(pieces=100_000, pause_s=0.02), activated=activated) as on:
        await on.wait_served("first")
        before = on.running.children()
        reader, writer = await asyncio.open_connection(*on.running.address, ssl=trusting("first"))
        writer.write(render_request(CHAT, chat(stream=True)))
        await reader.readuntil(b"w0 ")
        place(tmp_path, "second")
        await on.wait_served("second")
        assert (await reader.read(1)) != b""  # the stream that was there goes on
        writer.transport.abort()
        assert on.running.children() == before


async def test_connections_that_come_while_it_changes_are_all_answered(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        trust, over = trusting("first", "second"), asyncio.Event()
        request = render_request(CHAT, chat(), {"connection": "close"})

        async def ask_on() -> int:
            count = 0
            while not over.is_set():
                assert (await ask_over_tls(on.running.address, trust, request)).status == 200
                count += 1
            return count

        asking = [asyncio.create_task(ask_on()) for _ in range(3)]
        for name in ("second", "first", "second"):
            place(tmp_path, name)
            await on.wait_served(name)
        over.set()
        assert min(await asyncio.gather(*asking)) > 0


async def test_a_certificate_that_the_config_names_now_is_served(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        on.publish(tls_cert_file=str(TLS / "second.pem"), tls_key_file=str(TLS / "second-key.pem"))
        await on.wait_served("second")
        # The other worker may be a moment behind.
        await on.answers("first", "second")


async def test_tls_is_turned_off_and_on_while_it_serves(tmp_path: Path) -> None:
    async with scene(tmp_path, plain=True) as on:
        on.publish(tls_cert_file=str(tmp_path / "cert.pem"), tls_key_file=str(tmp_path / "key.pem"))
        await on.wait_served("first")
        on.publish()
        await on.wait_plain()


BROKEN: list[tuple[str, Callable[[Path], object], str]] = [
    ("another's key", lambda directory: place(directory, "second", "first"), "mismatch"),
    ("a key with a passphrase", lambda directory: place(directory, "second", "locked"), "passphrase"),
    ("no key", lambda directory: (directory / "key.pem").unlink(), "No such file"),
    ("nonsense", lambda directory: (directory / "cert.pem").write_text("nonsense"), "cannot be served with"),
    ("a file that was cut off", lambda directory: os.truncate(directory / "cert.pem", 300), "cannot be served with"),
]


@pytest.mark.parametrize(("breaks", "reason"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
async def test_a_broken_certificate_is_told_and_not_taken_up(
    tmp_path: Path, breaks: Callable[[Path], object], reason: str
) -> None:
    async with scene(tmp_path) as on:
        await on.wait_served("first")
        breaks(tmp_path)
        await on.wait_complaint(reason)
        assert reason in await on.running.wait_said("certificate_not_in_use")
        await on.wait_served("first")


async def test_what_was_served_outlives_reload_and_death_until_the_certificate_is_mended(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        await on.wait_served("first")
        place(tmp_path, "second", "first")
        await on.wait_complaint("mismatch")
        old = on.running.children()
        on.running.process.send_signal(signal.SIGHUP)
        await on.running.wait_gone(old)
        await on.wait_served("first")
        (killed, *_) = await on.running.wait_children(WORKERS)
        os.kill(killed, signal.SIGKILL)
        await on.running.wait_children(WORKERS, without=killed)
        await on.answers("first")
        place(tmp_path, "second")
        await on.wait_served("second")
        await on.wait_complaint("")


async def test_an_expired_certificate_replaces_no_good_one(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        expired = str(TLS / "provider-expired.pem")
        on.publish(tls_cert_file=expired, tls_key_file=expired)
        await on.wait_complaint("has expired on 2021-01-01")
        await on.wait_served("first")
