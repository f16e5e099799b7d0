"""Requests as they come from strangers: each is answered rightly or refused, and nothing is smuggled."""

import asyncio
from dataclasses import replace

import pytest

from core.http import refusal
from core.http.limits import DEFAULT_LIMITS
from core.http.refusal import Refusal
from tests.integration.http.harness import GET, RawClient, connected, echo, post, serving

_HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
_CODED = b"Transfer-Encoding: chunked\r\n\r\n"
_CHUNKED = _HEAD + _CODED
_UPGRADE = _HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
_WEBSOCKET = b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
_SMALL = replace(DEFAULT_LIMITS, body_bytes=1000)

REFUSED: list[tuple[str, bytes, Refusal]] = [
    ("length and coding", _HEAD + b"Content-Length: 3\r\n" + _CODED + b"0\r\n\r\n", refusal.MALFORMED),
    ("coding and length", _HEAD + _CODED[:-2] + b"Content-Length: 3\r\n\r\n0\r\n\r\n", refusal.MALFORMED),
    ("two lengths that differ", _HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", refusal.MALFORMED),
    ("two lengths alike", _HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", refusal.MALFORMED),
    ("a list of lengths", _HEAD + b"Content-Length: 3, 3\r\n\r\nabc", refusal.MALFORMED),
    ("a signed length", _HEAD + b"Content-Length: +3\r\n\r\nabc", refusal.MALFORMED),
    ("a negative length", _HEAD + b"Content-Length: -1\r\n\r\n", refusal.MALFORMED),
    ("an empty length", _HEAD + b"Content-Length:\r\n\r\n", refusal.MALFORMED),
    ("a hexadecimal length", _HEAD + b"Content-Length: 0x3\r\n\r\nabc", refusal.MALFORMED),
    ("an endless length", _HEAD + b"Content-Length: 99999999999999999999\r\n\r\n", refusal.MALFORMED),
    ("a blank before the colon", _HEAD + b"Content-Length : 3\r\n\r\nabc", refusal.MALFORMED),
    ("a folded field", _HEAD + b"X: a\r\n b\r\n\r\n", refusal.MALFORMED),
    ("a field without a name", _HEAD + b": v\r\n\r\n", refusal.MALFORMED),
    ("a line without a colon", _HEAD + b"NoColon\r\n\r\n", refusal.MALFORMED),
    ("a NUL in a value", _HEAD + b"X: a\x00b\r\n\r\n", refusal.MALFORMED),
    ("a NUL in a name", _HEAD + b"X\x00: b\r\n\r\n", refusal.MALFORMED),
    ("a bare CR in a value", _HEAD + b"X: a\rb\r\n\r\n", refusal.MALFORMED),
    ("bare LF as line ends", b"GET /echo HTTP/1.1\nHost: x\n\n", refusal.MALFORMED),
    ("gzip as transfer coding", _HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", refusal.UNKNOWN_CODING),
    ("chunked not last", _HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", refusal.MALFORMED),
    ("chunked twice", _HEAD + _CODED[:-2] + _CODED + b"0\r\n\r\n", refusal.MALFORMED),
    ("almost chunked", _HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", refusal.UNKNOWN_CODING),
    ("chunked in HTTP/1.0", b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", refusal.BAD_FRAMING),
    ("a chunk of unknown size", _CHUNKED + b"0x3\r\nabc\r\n", refusal.MALFORMED),
    ("a negative chunk", _CHUNKED + b"-1\r\n", refusal.MALFORMED),
    ("an endless chunk", _CHUNKED + b"FFFFFFFFFFFFFFFFF\r\n", refusal.MALFORMED),
    ("a chunk longer than it says", _CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n", refusal.MALFORMED),
    ("no Host", b"GET /echo HTTP/1.1\r\n\r\n", refusal.NO_HOST),
    ("two Hosts", b"GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", refusal.NO_HOST),
    ("HTTP/2.0", b"GET /echo HTTP/2.0\r\nHost: x\r\n\r\n", refusal.UNKNOWN_VERSION),
    ("HTTP/0.9", b"GET /echo\r\n\r\n", refusal.UNKNOWN_VERSION),
    ("HTTP/1.2", b"GET /echo HTTP/1.2\r\nHost: x\r\n\r\n", refusal.MALFORMED),
    ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", refusal.MALFORMED),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", refusal.MALFORMED),
    ("an unknown method", b"BREW /echo HTTP/1.1\r\nHost: x\r\n\r\n", refusal.MALFORMED),
    ("a method in lower case", b"get /echo HTTP/1.1\r\nHost: x\r\n\r\n", refusal.MALFORMED),
    ("a tunnel", b"CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n", refusal.NO_TUNNELS),
    ("a fragment", b"GET /echo#part HTTP/1.1\r\nHost: x\r\n\r\n", refusal.BAD_TARGET),
    ("another scheme", b"GET ftp://x/echo HTTP/1.1\r\nHost: x\r\n\r\n", refusal.BAD_TARGET),
    ("raw bytes in the path", b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", refusal.MALFORMED),
    ("an unknown expectation", _HEAD + b"Expect: more\r\nContent-Length: 3\r\n\r\nabc", refusal.UNKNOWN_EXPECTATION),
    ("a head of 70 KiB", _HEAD + b"X: " + b"a" * 70_000 + b"\r\n\r\n", refusal.HEAD_TOO_LARGE),
    ("a path of 70 KiB", b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", refusal.HEAD_TOO_LARGE),
    ("a head that never ends", _HEAD + b"X: y\r\n" * 11_000 + b"X: ", refusal.HEAD_TOO_LARGE),
    ("200 fields", _HEAD + b"X: y\r\n" * 200 + b"\r\n", refusal.HEAD_TOO_LARGE),
    ("a body that is too long", _HEAD + b"Content-Length: 1001\r\n\r\n", refusal.BODY_TOO_LARGE),
    ("chunks that are too long", _CHUNKED + b"3e9\r\n" + b"a" * 1001, refusal.BODY_TOO_LARGE),
    ("too long and expecting", _HEAD + b"Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n", refusal.BODY_TOO_LARGE),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "expected"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_a_request_that_cannot_be_trusted_is_refused_and_the_connection_closed(
    request_: bytes, expected: Refusal
) -> None:
    async with serving(echo, _SMALL) as served, connected(served.port) as client:
        await client.send(request_ + GET)
        answer = await client.answer()
        error = answer.json["error"]
        assert isinstance(error, dict)
        assert (answer.status, error["code"]) == (expected.status, expected.code)
        assert answer.headers["connection"] == "close"
        assert await client.is_closed()
        assert served.errors == []


TAKEN: list[tuple[str, bytes, dict[str, object]]] = [
    ("a plain GET", GET, {"method": "GET", "path": "/echo", "size": 0}),
    ("a body by length", post("/echo", b"abc"), {"size": 3, "begin": "abc"}),
    ("an empty body", post("/echo", b""), {"size": 0}),
    ("chunks", _CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", {"size": 5, "begin": "abcde"}),
    ("Chunked", _HEAD + b"Transfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", {"begin": "abc"}),
    ("chunk extensions", _CHUNKED + b"3;a=b\r\nabc\r\n0\r\n\r\n", {"begin": "abc"}),
    ("blank lines before it", b"\r\n\r\n" + GET, {"path": "/echo"}),
    ("an absolute target", b"GET http://h:1/a?b=c HTTP/1.1\r\nHost: x\r\n\r\n", {"path": "/a", "query": "b'b=c'"}),
    ("an absolute target without path", b"GET http://h?b HTTP/1.1\r\nHost: x\r\n\r\n", {"path": "/", "query": "b'b'"}),
    ("an asterisk", b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", {"path": "*"}),
    ("an encoded path", b"GET /a%20b%2Fc HTTP/1.1\r\nHost: x\r\n\r\n", {"path": "/a b/c"}),
    ("a path that is no UTF-8", b"GET /%ff HTTP/1.1\r\nHost: x\r\n\r\n", {"path": "/\ufffd"}),
    ("a query with a question mark", b"GET /a?b?c HTTP/1.1\r\nHost: x\r\n\r\n", {"query": "b'b?c'"}),
    ("an empty Host", b"GET /echo HTTP/1.1\r\nHost:\r\n\r\n", {"path": "/echo"}),
    ("h2c offered", _UPGRADE + b"Content-Length: 3\r\n\r\nabc", {"begin": "abc"}),
    ("h2c offered with chunks", _UPGRADE + _CODED + b"3\r\nabc\r\n0\r\n\r\n", {"begin": "abc"}),
    ("a websocket offered", _WEBSOCKET, {"path": "/echo"}),
    ("a body with GET", b"GET /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", {"begin": "abc"}),
    ("a head of 60 KiB", _HEAD + b"X: " + b"a" * 60_000 + b"\r\nContent-Length: 3\r\n\r\nabc", {"begin": "abc"}),
    ("Latin-1 in a value", _HEAD + b"X: caf\xe9\r\nContent-Length: 3\r\n\r\nabc", {"begin": "abc"}),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "told"), [row[1:] for row in TAKEN], ids=[row[0] for row in TAKEN])
async def test_an_unusual_request_is_understood_and_the_next_one_too(request_: bytes, told: dict[str, object]) -> None:
    async with serving(echo) as served, connected(served.port) as client:
        await client.send(request_)
        answer = await client.answer()
        assert answer.status == 200
        assert {key: answer.json[key] for key in told} == told
        await client.send(post("/next", b"next"))
        assert (await client.answer()).json["begin"] == "next"


@pytest.mark.parametrize("request_", [row[1] for row in TAKEN], ids=[row[0] for row in TAKEN])
async def test_a_request_that_comes_byte_by_byte_is_the_same_request(request_: bytes) -> None:
    async with serving(echo) as served, connected(served.port) as client:
        await client.send(request_)
        expected = await client.answer()
        step = max(1, len(request_) // 500)
        for at in range(0, len(request_), step):
            client.writer.write(request_[at : at + step])
            await asyncio.sleep(0)
        assert (await client.answer()).json == expected.json


async def test_a_declined_upgrade_is_not_passed_on_to_the_application() -> None:
    offer = b"Connection: keep-alive, Upgrade\r\nUpgrade: h2c\r\nX: y\r\n\r\n"
    async with serving(echo) as served, connected(served.port) as client:
        await client.send(b"GET /echo HTTP/1.1\r\nHost: x\r\n" + offer)
        assert (await client.answer()).json["headers"] == [["host", "x"], ["connection", "keep-alive"], ["x", "y"]]


async def test_a_trailer_cannot_add_a_field_to_the_head() -> None:
    async with serving(echo) as served, connected(served.port) as client:
        await client.send(_CHUNKED + b"1\r\na\r\n0\r\nAuthorization: Bearer x\r\n\r\n")
        assert (await client.answer()).json["headers"] == [["host", "x"], ["transfer-encoding", "chunked"]]


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with serving(echo) as served, connected(served.port) as client:
        await client.send(b"".join(post(f"/{number}", b"x" * number) for number in range(200)))
        for number in range(200):
            answer = await client.answer()
            assert (answer.json["path"], answer.json["size"]) == (f"/{number}", number)


async def test_a_bad_request_in_a_pipeline_is_refused_after_the_answers_before_it() -> None:
    async with serving(echo) as served, connected(served.port) as client:
        await client.send(GET + GET + _HEAD + b"X: a\r\n b\r\n\r\n" + GET)
        assert [(await client.answer()).status for _ in range(3)] == [200, 200, 400]
        assert await client.is_closed()


async def test_a_request_that_asks_to_close_is_the_last_one() -> None:
    async with serving(echo) as served, connected(served.port) as client:
        await client.send(b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + GET)
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await client.is_closed()


async def test_too_many_pipelined_requests_end_the_connection() -> None:
    limits = replace(DEFAULT_LIMITS, pipeline_requests=5)
    async with serving(echo, limits) as served, connected(served.port) as client:
        await client.send(GET * 20)
        statuses: list[int] = []
        while not statuses or statuses[-1] == 200:
            statuses.append((await client.answer()).status)
        assert statuses == [200] * 6 + [400]
        assert await client.is_closed()


async def test_a_client_that_expects_to_be_asked_sends_its_body_when_it_is() -> None:
    async with serving(echo) as served, connected(served.port) as client:
        for _ in range(2):
            await client.send(_HEAD + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
            assert (await client.answer()).status == 100
            await client.send(b"abc")
            assert (await client.answer()).json["begin"] == "abc"


async def test_a_pipelined_expectation_is_met_after_the_answer_before_it() -> None:
    async with serving(echo) as served, connected(served.port) as client:
        await client.send(GET + _HEAD + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert [(await client.answer()).status for _ in range(2)] == [200, 100]
        await client.send(b"abc")
        assert (await client.answer()).json["begin"] == "abc"


async def test_an_http_1_0_client_gets_its_answer_and_the_end_of_the_connection() -> None:
    async with serving(echo) as served, connected(served.port) as client:
        await client.send(b"GET /echo HTTP/1.0\r\n\r\n")
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"], answer.json["version"]) == (200, "close", "1.0")
        assert await client.is_closed()


async def test_head_has_the_head_of_get_and_no_body() -> None:
    async with serving(echo) as served, connected(served.port) as client:
        await client.send(b"HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await client.answer(head=True)
        assert int(answer.headers["content-length"]) > 0
        await client.send(GET)
        assert (await client.answer()).json["method"] == "GET"


async def test_a_body_of_20_mb_arrives_at_default_settings() -> None:
    async with serving(echo) as served, connected(served.port) as client:
        await client.send(post("/echo", b"x" * 20_000_000))
        assert (await client.answer()).json["size"] == 20_000_000


@pytest.mark.parametrize("size", [32_767, 32_768, 32_769, 65_535, 65_536, 262_144, 1_014_506])
async def test_no_size_of_a_body_is_special(size: int) -> None:
    async with serving(echo) as served, connected(served.port) as client:
        await client.send(post("/echo", b"x" * size))
        assert (await client.answer()).json["size"] == size


async def test_a_refusal_is_read_by_a_client_that_is_still_sending() -> None:
    async with serving(echo, _SMALL) as served, connected(served.port) as client:
        body = b"x" * 5_000_000
        sending = asyncio.ensure_future(_send_quietly(client, post("/echo", body)))
        assert (await client.answer()).status == 413
        await sending


async def _send_quietly(client: RawClient, data: bytes) -> None:
    try:
        await client.send(data)
    except ConnectionError:
        return


SLOW: list[tuple[str, bytes]] = [
    ("in its head", b"GET /echo HTTP/1.1\r\nHost:"),
    ("in its body", _HEAD + b"Content-Length: 10\r\n\r\nabc"),
    ("in a chunk", _CHUNKED + b"5\r\nab"),
]


@pytest.mark.parametrize("begin", [row[1] for row in SLOW], ids=[row[0] for row in SLOW])
async def test_a_client_that_stops_inside_a_request_is_told_so_and_closed(begin: bytes) -> None:
    limits = replace(DEFAULT_LIMITS, head_timeout_s=0.3, body_timeout_s=0.3, sweep_s=0.02, linger_s=0.05)
    async with serving(echo, limits) as served, connected(served.port) as client:
        await client.send(begin)
        assert (await client.answer()).status == 408
        assert await client.is_closed()


async def test_a_client_that_drips_its_head_gets_no_more_time_for_each_drop() -> None:
    limits = replace(DEFAULT_LIMITS, head_timeout_s=0.2, sweep_s=0.02, linger_s=0.05)
    async with serving(echo, limits) as served, connected(served.port) as client:
        dripping = asyncio.ensure_future(_drip(client))
        assert (await client.answer()).status == 408
        dripping.cancel()


async def _drip(client: RawClient) -> None:
    await client.send(b"GET /echo HTTP/1.1\r\n")
    while True:
        await _send_quietly(client, b"X: y\r\n")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("before", [b"", GET], ids=["before the first request", "between requests"])
async def test_an_idle_connection_is_closed_in_the_end(before: bytes) -> None:
    limits = replace(DEFAULT_LIMITS, head_timeout_s=0.3, idle_timeout_s=0.3, sweep_s=0.02)
    async with serving(echo, limits) as served, connected(served.port) as client:
        if before:
            await client.send(before)
            await client.answer()
        assert await client.is_closed()
