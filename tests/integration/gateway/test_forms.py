"""Forms with files through the gateway: bytes as they are, held back, broken off, refused, never held as a whole."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from openai import AsyncOpenAI, NotFoundError

from core.http.limits import DEFAULT_LIMITS, HttpLimits
from tests.fakes.daemon_socket import FakeDaemon
from tests.integration.gateway.harness import Gateway, gateway, prepare_layout
from tests.integration.gateway.workers import workers
from tests.integration.http.harness import RawClient, connected
from tests.patience import SOON_S
from tests.unit.gateway.tables import model, table, target

PATH = "/v1/audio/transcriptions"
ANSWER = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{"text":"hi"}'
MODEL = b'--xYz\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
FILE_HEAD = b'--xYz\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
END = b"\r\n--xYz--\r\n"


@dataclass
class Engine:
    """Takes forms, and says what it is told to."""

    port: int = 0
    answer: bytes = ANSWER
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    """Not set: it reads no body."""
    answers_early: bool = False
    heads: list[bytes] = field(default_factory=list)
    bodies: list[tuple[int, str, bytes]] = field(default_factory=list)
    """Size, digest and first KiB."""
    read: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    broken: asyncio.Event = field(default_factory=asyncio.Event)

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                self.begun.set()
                if self.answers_early:
                    writer.write(self.answer)
                    await reader.read()
                    return
                await self.reads.wait()
                await self._read_body(head, reader)
                writer.write(self.answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.broken.set()
        finally:
            writer.close()

    async def _read_body(self, head: bytes, reader: asyncio.StreamReader) -> None:
        digest, size, begin = hashlib.sha256(), 0, b""
        async for part in _parts(head, reader):
            digest.update(part)
            size += len(part)
            begin = (begin + part)[:1024]
        self.bodies.append((size, digest.hexdigest(), begin))
        self.read.set()


async def _parts(head: bytes, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    found = re.search(rb"content-length: (\d+)", head)
    left = int(found[1]) if found else 0
    if found is None:
        assert b"transfer-encoding: chunked" in head
        while size := int(await reader.readuntil(b"\n"), 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    while left:
        part = await reader.read(min(left, 1 << 16))
        if not part:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(part)
        yield part


@asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[Engine]:
    tasks: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await engine.converse(reader, writer)
        tasks.discard(task)

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    engine.port = server.sockets[0].getsockname()[1]
    try:
        yield engine
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def forms(
    directory: Path, engine: Engine, *, limits: HttpLimits = DEFAULT_LIMITS, lane: str = "fast lane"
) -> AsyncIterator[Gateway]:
    async with running(engine):
        routes = table(model("m", target(port=engine.port, max_concurrency=1), aliases=("alias",)))
        async with gateway(directory, routes, limits=limits, lane=lane) as gw:
            yield gw


def reading() -> Engine:
    engine = Engine()
    engine.reads.set()
    return engine


def form(data: bytes, *, first: bytes = MODEL) -> bytes:
    return first + FILE_HEAD + data + END


def head(length: int, path: str = PATH, *fields: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: multipart/form-data; boundary=xYz", *fields]
    return ("\r\n".join([*lines, f"Content-Length: {length}"]) + "\r\n\r\n").encode()


def told(data: bytes) -> tuple[int, str]:
    return len(data), hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("lane", ["fast lane", "resource"])
@pytest.mark.parametrize("path", [PATH, "/v1/audio/translations", "/v1/images/edits", "/v1/images/variations"])
async def test_a_form_reaches_the_engine_byte_for_byte(tmp_path: Path, path: str, lane: str) -> None:
    engine, body = reading(), form(bytes(range(256)) * 3000)
    async with forms(tmp_path, engine, lane=lane) as gw, connected(gw.port) as client:
        for number in range(1, 4):  # one connection serves them all
            await client.send(head(len(body), path) + body)
            answer = await client.answer()
            assert (answer.status, answer.body) == (200, b'{"text":"hi"}')
            assert answer.headers["x-llmgw-target"] == "t1"
            assert len(engine.bodies) == number
    assert [each[:2] for each in engine.bodies] == [told(body)] * 3
    assert b"multipart/form-data; boundary=xYz" in engine.heads[0]


async def test_a_form_in_chunks_is_passed_on_in_chunks(tmp_path: Path) -> None:
    engine, body = reading(), form(b"x" * 200_000)
    chunks = b"".join(
        b"%x\r\n%b\r\n" % (len(body[at : at + 999]), body[at : at + 999]) for at in range(0, len(body), 999)
    )
    async with forms(tmp_path, engine) as gw, connected(gw.port) as client:
        asked = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        await client.send(asked + chunks + b"0\r\n\r\n")
        assert (await client.answer()).status == 200
    assert engine.bodies[0][:2] == told(body)


async def test_the_model_may_stand_behind_the_file(tmp_path: Path) -> None:
    engine, data = reading(), FILE_HEAD + b"y" * 3_000_000 + b"\r\n" + MODEL[:-2] + END
    async with forms(tmp_path, engine) as gw, connected(gw.port) as client:
        await client.send(head(len(data)) + data)
        assert (await client.answer()).status == 200
    assert engine.bodies[0][:2] == told(data)


async def test_an_alias_is_the_engines_name_there_and_the_length_is_right(tmp_path: Path) -> None:
    engine, data = reading(), b"z" * 100_000
    asked = form(data, first=MODEL.replace(b"\r\n\r\nm\r\n", b"\r\n\r\nalias\r\n"))
    async with forms(tmp_path, engine) as gw, connected(gw.port) as client:
        await client.send(head(len(asked)) + asked)
        assert (await client.answer()).status == 200
    assert engine.bodies[0][:2] == told(form(data))


async def test_the_official_sdk_transcribes_and_edits(tmp_path: Path) -> None:
    engine = reading()
    async with (
        forms(tmp_path, engine) as gw,
        AsyncOpenAI(base_url=f"{gw.url}/v1", api_key="k", max_retries=0) as client,
    ):
        said = await client.audio.transcriptions.create(model="m", file=("a.wav", b"RIFF" * 50_000))
        assert said.text == "hi"
        await client.images.edit(model="m", image=("a.png", b"PNG" * 50_000), prompt="more")
        with pytest.raises(NotFoundError):
            await client.audio.transcriptions.create(model="none", file=("a.wav", b"RIFF" * 50_000))
    assert len(engine.bodies) == 2


REFUSED: list[tuple[str, bytes, int, str]] = [
    ("no model", FILE_HEAD + b"x" * 5000 + END, 400, "missing_model"),
    ("an unknown model", form(b"x" * 5000, first=MODEL.replace(b"\r\nm\r\n", b"\r\nnone\r\n")), 404, "unknown_model"),
    ("no form", b"hello, this is not a form at all", 400, "invalid_form"),
    ("nothing", b"", 400, "missing_model"),
]


@pytest.mark.parametrize(("body", "status", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_a_form_that_cannot_be_served_is_refused(tmp_path: Path, body: bytes, status: int, code: str) -> None:
    engine = reading()
    async with forms(tmp_path, engine) as gw, connected(gw.port) as client:
        await client.send(head(len(body)) + body)
        answer = await client.answer()
        error = answer.json["error"]
        assert isinstance(error, dict)
        assert (answer.status, error["code"]) == (status, code)
    assert engine.heads == []


async def test_a_refusal_is_read_by_a_client_that_is_still_sending(tmp_path: Path) -> None:
    engine = reading()
    unknown = MODEL.replace(b"\r\nm\r\n", b"\r\nnone\r\n") + FILE_HEAD
    async with (
        forms(tmp_path, engine, limits=replace(DEFAULT_LIMITS, linger_s=0.5)) as gw,
        connected(gw.port) as client,
    ):
        await client.send(head(200_000_000) + unknown + b"x" * 100_000)
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (404, "close")


@pytest.mark.parametrize("length", [(512 << 20) + 1, 1 << 40])
async def test_a_form_over_512_mib_is_refused_by_its_length(tmp_path: Path, length: int) -> None:
    async with forms(tmp_path, reading()) as gw, connected(gw.port) as client:
        await client.send(head(length) + MODEL)
        assert (await client.answer()).status == 413


async def test_chunks_over_the_limit_end_the_request_at_client_and_engine(tmp_path: Path) -> None:
    engine = reading()
    limits = replace(DEFAULT_LIMITS, form_bytes=1_000_000, linger_s=0.5)
    async with forms(tmp_path, engine, limits=limits) as gw, connected(gw.port) as client:
        asked = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"%x\r\n" % (8 << 20)
        await client.send(asked + MODEL + FILE_HEAD + b"x" * 1_500_000)
        answer = await client.answer()
        assert (answer.status, answer.json["error"]["code"]) == (413, "body_too_large")  # type: ignore[index]
        async with asyncio.timeout(SOON_S):
            await engine.broken.wait()
    assert engine.bodies == []


async def test_an_engine_that_refuses_early_is_heard(tmp_path: Path) -> None:
    engine = Engine(answers_early=True)
    engine.answer = b'HTTP/1.1 422 No\r\ncontent-length: 15\r\n\r\n{"error":"long"}'[:-1]
    async with (
        forms(tmp_path, engine, limits=replace(DEFAULT_LIMITS, linger_s=0.5)) as gw,
        connected(gw.port) as client,
    ):
        await client.send(head(50_000_000) + MODEL + FILE_HEAD + b"x" * 100_000)
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (422, "close")


async def _send_all(client: RawClient, data: bytes, times: int) -> None:
    for _ in range(times):
        await client.send(data)


async def test_an_engine_that_does_not_read_holds_its_client_back(tmp_path: Path) -> None:
    engine, size = Engine(), 100 << 20
    async with forms(tmp_path, engine) as gw, connected(gw.port) as client:
        await client.send(head(len(MODEL + FILE_HEAD) + size + len(END)) + MODEL + FILE_HEAD)
        sending = asyncio.ensure_future(_send_all(client, b"x" * (1 << 20), 100))
        await engine.begun.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(sending), 1.0)
        engine.reads.set()
        await sending
        await client.send(END)
        assert (await client.answer()).status == 200
    assert engine.bodies[0][0] == len(MODEL + FILE_HEAD) + size + len(END)


@pytest.mark.parametrize("moment", ["in the early part", "in the file", "while held back", "before the answer"])
async def test_a_client_that_leaves_ends_the_engines_request(tmp_path: Path, moment: str) -> None:
    engine = Engine() if moment == "while held back" else reading()
    limits = replace(DEFAULT_LIMITS, sweep_s=0.1)
    async with forms(tmp_path, engine, limits=limits) as gw:
        async with connected(gw.port) as client:
            body = form(b"x" * 1_000_000)
            if moment == "in the early part":
                await client.send(head(len(body)) + body[:20])
            elif moment == "in the file":
                await client.send(head(len(body)) + body[:50_000])
                await engine.begun.wait()
            elif moment == "while held back":
                await client.send(head(100 << 20) + body)
                await engine.begun.wait()
            else:
                engine.answer = b""
                await client.send(head(len(body)) + body)
                await engine.read.wait()
            client.reset()
        if moment != "in the early part":
            engine.reads.set()
            async with asyncio.timeout(SOON_S):
                await engine.broken.wait()
        engine.answer = ANSWER
        async with connected(gw.port) as client:  # the only slot is free
            await client.send(head(len(body)) + body)
            assert (await client.answer()).status == 200


async def test_a_client_that_stops_in_its_form_is_closed_in_the_end(tmp_path: Path) -> None:
    engine = reading()
    limits = replace(DEFAULT_LIMITS, body_timeout_s=0.5, sweep_s=0.05)
    async with forms(tmp_path, engine, limits=limits) as gw, connected(gw.port) as client:
        await client.send(head(1_000_000) + MODEL + FILE_HEAD + b"x" * 1000)
        async with asyncio.timeout(SOON_S):
            assert await client.is_closed()
            await engine.broken.wait()


async def test_a_form_of_300_mb_costs_a_worker_a_fraction_of_it(tmp_path: Path) -> None:
    async with running(reading()) as engine:
        routes = table(model("m", target(port=engine.port)))
        async with FakeDaemon(prepare_layout(tmp_path).daemon_socket, routes), workers(tmp_path, 1) as run:
            pid = await run.pid()
            before = _peak_kib(pid)
            async with connected(run.address[1]) as client:
                await client.send(head(len(MODEL + FILE_HEAD) + 300_000_000 + len(END)) + MODEL + FILE_HEAD)
                await _send_all(client, b"x" * 1_000_000, 300)
                await client.send(END)
                assert (await client.answer()).status == 200
            assert _peak_kib(pid) - before < 40_000
    assert engine.bodies[0][0] == len(MODEL + FILE_HEAD) + 300_000_000 + len(END)


def _peak_kib(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])
