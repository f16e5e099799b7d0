"""The simulated engine as a process: its dialect, its faults, and that it knows who left."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import LlmgwError
from core.http.client import HttpClient, Reply
from engines.adapter import EngineSpec, Health
from engines.registry import get_adapter
from tests.engines.running import KEY, EngineClient, RunningEngine, free_port, prepare, running
from tests.patience import MOMENT_S, SOON_S

CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"
HELLO = [{"role": "user", "content": "say hello"}]


def a_sim(*, slots: int = 4, **options: str | float | bool) -> EngineSpec:
    return EngineSpec("r", "sim", ("one", "two"), 0, max_concurrency=slots, options=options)


def a_request(**more: object) -> dict[str, object]:
    return {"model": "one", "messages": HELLO, "prompt": "say hello", **more}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineSpec]:
    """One simulated engine for all tests that leave it as it was; they look at what changed."""
    folder = tmp_path_factory.mktemp("shared")
    spec = replace(a_sim(), port=free_port(), home=folder / "home")
    argv, environment = prepare(spec, folder)
    process = subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        assert b"sim_listening" in process.stderr.readline()
        yield spec
    finally:
        process.kill()
        process.communicate()


@asynccontextmanager
async def client_of(spec: EngineSpec) -> AsyncIterator[EngineClient]:
    async with HttpClient() as client:
        yield EngineClient(spec, client)


async def stats(engine: EngineClient, **at_least: int) -> Mapping[str, int]:
    """The counts, once they are reached."""
    query = "&".join(f"{name}={count}" for name, count in at_least.items())
    reply = await engine.ask(f"/sim/stats?timeoutS={SOON_S:g}&{query}")
    counts: dict[str, int] = json.loads(reply.body)
    return counts


def header(reply: Reply, name: str) -> str:
    return next((value for key, value in reply.headers.items() if key.lower() == name), "")


def events(body: bytes) -> list[str]:
    return [event.removeprefix("data: ") for event in body.decode().split("\n\n") if event]


async def test_an_answer_comes_whole_and_streamed_with_the_same_words(tmp_path: Path) -> None:
    async with running(a_sim(tokens=5), tmp_path) as sim:
        whole = json.loads((await sim.ask(CHAT, a_request())).body)
        streamed = await sim.ask(CHAT, a_request(stream=True, stream_options={"include_usage": True}))

    chunks = [json.loads(event) for event in events(streamed.body)[:-1]]
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk["choices"])
    assert whole["choices"][0]["message"]["content"] == text == "w0 w1 w2 w3 w4 "
    assert whole["usage"] == chunks[-1]["usage"] == {"prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9}
    assert chunks[-1]["choices"] == []
    assert events(streamed.body)[-1] == "[DONE]"
    assert header(streamed, "content-type") == "text/event-stream"


@pytest.mark.parametrize("path", [CHAT, COMPLETION])
@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
async def test_a_limit_of_tokens_is_kept(path: str, limit: str, shared: EngineSpec) -> None:
    async with client_of(shared) as sim:
        answer = json.loads((await sim.ask(path, a_request(**{limit: 2}))).body)

    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 2


async def test_without_being_asked_a_stream_has_no_usage(shared: EngineSpec) -> None:
    async with client_of(shared) as sim:
        reply = await sim.ask(CHAT, a_request(stream=True))

    assert b"usage" not in reply.body


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        ("/health", "wrong", 200), ("/v1/models", "wrong", 401), ("/v1/models", "", 401), ("/v1/models", KEY, 200),
        ("/metrics", KEY[:-1], 401), ("/metrics", KEY + "x", 401), ("/sim/stats", "ü", 401), ("/nothing", KEY, 404),
    ],
)  # fmt: skip
async def test_the_key_is_demanded_on_all_but_health(path: str, key: str, status: int, shared: EngineSpec) -> None:
    async with client_of(shared) as sim:
        assert (await sim.ask(path, key=key)).status == status


async def test_the_official_library_reads_it(tmp_path: Path) -> None:
    openai = pytest.importorskip("openai", reason="pip install openai")
    async with (
        running(a_sim(tokens=3), tmp_path) as sim,
        openai.AsyncOpenAI(base_url=sim.url + "/v1", api_key=KEY) as c,
    ):
        answer = await c.chat.completions.create(model="two", messages=HELLO)
        stream = await c.chat.completions.create(model="two", messages=HELLO, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert answer.choices[0].message.content == text == "w0 w1 w2 "


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"{", 400, "invalid_request_error"),
        (b"[]", 400, "invalid_request_error"),
        (b"\xff", 400, "invalid_request_error"),
        (b'{"model":"one","max_tokens":0}', 400, "invalid_request_error"),
        (b'{"model":"one","max_tokens":"x"}', 400, "invalid_request_error"),
        (b'{"model":"one","sim":{"fault":"no such"}}', 400, "invalid_request_error"),
        (b'{"model":"one","sim":{"tokens":-1}}', 400, "invalid_request_error"),
        (b'{"model":"one","sim":{"surprise":1}}', 400, "invalid_request_error"),
        (b'{"model":"three"}', 404, "not_found_error"),
        (b'{"model":"a\\nb"}', 404, "not_found_error"),
        (b"{}", 404, "not_found_error"),
        (b'{"model":"one","prompt":"' + b"w " * 5000 + b'"}', 400, "exceed_context_size_error"),
    ],
    ids=lambda value: ascii(value)[:30],
)
async def test_a_bad_request_is_answered_in_the_engines_envelope(
    body: bytes, status: int, kind: str, shared: EngineSpec
) -> None:
    async with client_of(shared) as sim:
        headers = {"Authorization": f"Bearer {KEY}"}
        reply = await sim.client.fetch("POST", sim.url + CHAT, headers=headers, body=body, timeout_s=10)

    assert reply.status == status
    assert json.loads(reply.body)["error"]["type"] == kind


@pytest.mark.parametrize("path", [CHAT, COMPLETION])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("after_tokens", [0, 3])
@pytest.mark.parametrize("half_close", [True, False])
async def test_a_client_that_leaves_stops_the_computing_at_once(
    path: str, stream: bool, after_tokens: int, half_close: bool, shared: EngineSpec
) -> None:
    async with client_of(shared) as sim:
        before = await stats(sim)
        behaviour = {"fault": "hang", "afterTokens": after_tokens, "tokens": 10}
        _, writer = await sim.begin(path, a_request(stream=stream, sim=behaviour))
        assert (await stats(sim, running=1, tokens=before["tokens"] + after_tokens))["running"] == 1
        begin = asyncio.get_running_loop().time()
        if half_close:
            writer.write_eof()
        else:
            writer.close()
        counts = await stats(sim, closedEarly=before["closedEarly"] + 1)
        took_s = asyncio.get_running_loop().time() - begin
        writer.close()

    assert counts["closedEarly"] == before["closedEarly"] + 1 and counts["open"] == counts["running"] == 0
    assert took_s < MOMENT_S


async def test_a_client_that_leaves_a_running_stream_is_counted_once(shared: EngineSpec) -> None:
    async with client_of(shared) as sim:
        before = await stats(sim)
        reader, writer = await sim.begin(CHAT, a_request(stream=True, sim={"tokens": 100_000, "tokensPerS": 100}))
        await reader.readuntil(b"w3 ")
        writer.close()
        counts = await stats(sim, closedEarly=before["closedEarly"] + 1)

    assert (counts["completed"], counts["open"]) == (before["completed"], 0)
    assert counts["tokens"] < before["tokens"] + 1000


async def test_a_reader_that_never_reads_is_counted_when_it_leaves(shared: EngineSpec) -> None:
    async with client_of(shared) as sim:
        before = await stats(sim)
        _, writer = await sim.begin(CHAT, a_request(stream=True, sim={"tokens": 1_000_000}))
        await stats(sim, tokens=before["tokens"] + 1000)
        writer.transport.abort()
        counts = await stats(sim, closedEarly=before["closedEarly"] + 1)

    assert (counts["closedEarly"], counts["open"]) == (before["closedEarly"] + 1, 0)


@pytest.mark.parametrize("fault", ["half-close", "reset"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("after_tokens", [0, 2])
async def test_a_broken_answer_never_looks_whole(
    fault: str, stream: bool, after_tokens: int, shared: EngineSpec
) -> None:
    async with client_of(shared) as sim:
        before = await stats(sim)
        request = a_request(stream=stream, sim={"fault": fault, "afterTokens": after_tokens, "tokens": 5})
        reader, writer = await sim.begin(CHAT, request)
        received = b""
        try:
            received = await reader.read(-1)
            was_reset = False
        except ConnectionResetError:
            was_reset = True
        writer.close()
        counts = await stats(sim, failed=before["failed"] + 1)

    assert was_reset == (fault == "reset")
    assert b"[DONE]" not in received and not received.endswith(b"0\r\n\r\n")
    assert counts["failed"] == before["failed"] + 1 and counts["open"] == 0


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_an_error_is_answered_with_the_wanted_status(stream: bool, status: int, shared: EngineSpec) -> None:
    async with client_of(shared) as sim:
        reply = await sim.ask(CHAT, a_request(stream=stream, sim={"fault": "error", "status": status}))

    assert reply.status == status


async def test_a_stream_may_lack_usage_and_hold_garbage(shared: EngineSpec) -> None:
    async with client_of(shared) as sim:
        asked = {"stream_options": {"include_usage": True}}
        silent = await sim.ask(CHAT, a_request(stream=True, sim={"fault": "no-usage", "tokens": 2}, **asked))
        broken = await sim.ask(CHAT, a_request(stream=True, sim={"fault": "garbage", "afterTokens": 1, "tokens": 2}))

    assert b"usage" not in silent.body and b"[DONE]" in silent.body
    with pytest.raises(ValueError, match="Unterminated"):
        [json.loads(event) for event in events(broken.body)[:-1]]


async def test_slots_bound_what_runs_and_the_queue_bounds_what_waits(tmp_path: Path) -> None:
    async with running(a_sim(slots=1, queue=1), tmp_path) as sim:
        _, first = await sim.begin(CHAT, a_request(sim={"fault": "hang"}))
        await stats(sim, running=1)
        second_reader, second = await sim.begin(CHAT, a_request(stream=True, sim={"tokens": 1}))
        counts = await stats(sim, waiting=1)
        third = await sim.ask(CHAT, a_request(stream=True))
        first.close()
        answer = await second_reader.readuntil(b"[DONE]")
        second.close()

    assert (counts["running"], counts["waiting"]) == (1, 1)
    assert third.status == 429 and header(third, "retry-after") == "1"
    assert b"w0 " in answer


async def test_the_pace_of_tokens_is_kept(shared: EngineSpec) -> None:
    async with client_of(shared) as sim:
        begin = asyncio.get_running_loop().time()
        await sim.ask(CHAT, a_request(sim={"firstTokenS": 0.2, "tokensPerS": 50, "tokens": 11}))
        took_s = asyncio.get_running_loop().time() - begin

    assert 0.4 <= took_s < 0.4 + MOMENT_S


async def test_health_and_behaviour_can_be_changed_while_it_runs(tmp_path: Path) -> None:
    async with running(a_sim(), tmp_path) as sim:
        await sim.ask("/sim/health", {"status": 500, "delayS": 0.0}, method="PUT")
        await sim.wait_health(Health.FAILED)
        await sim.ask("/sim/health", {"status": 200}, method="PUT")
        await sim.wait_health(Health.READY)
        await sim.ask("/sim/behaviour", {"tokens": 1}, method="PUT")
        answer = json.loads((await sim.ask(CHAT, a_request())).body)

    assert answer["usage"]["completion_tokens"] == 1


async def test_while_loading_it_says_so_and_serves_nobody(tmp_path: Path) -> None:
    async with running(a_sim(loadTimeS=4.0), tmp_path, wait=False) as sim:
        await sim.wait_health(Health.LOADING)
        early = await sim.ask(CHAT, a_request())
        await sim.wait_health(Health.READY)
        late = await sim.ask(CHAT, a_request())

    assert (early.status, late.status) == (503, 200)


async def test_progress_is_what_the_adapter_reads(tmp_path: Path) -> None:
    async with running(a_sim(slots=1), tmp_path) as sim:
        await sim.ask(CHAT, a_request(sim={"tokens": 7}))
        _, writer = await sim.begin(CHAT, a_request(sim={"fault": "hang"}))
        await stats(sim, running=1)
        progress = get_adapter("sim").read_progress((await sim.ask("/metrics")).body.decode())
        writer.close()

    assert (progress.running, progress.waiting, progress.tokens_total) == (1, 0, 4 + 7 + 4)


@pytest.mark.parametrize("after_tokens", [0, 2])
async def test_a_crash_ends_it_by_a_signal(after_tokens: int, tmp_path: Path) -> None:
    async with running(a_sim(), tmp_path) as sim:
        with pytest.raises(LlmgwError):
            await sim.ask(CHAT, a_request(stream=True, sim={"fault": "crash", "afterTokens": after_tokens}))

        assert await sim.process.wait() == -signal.SIGSEGV


async def test_it_dies_after_so_many_answers_but_finishes_the_last(tmp_path: Path) -> None:
    async with running(a_sim(crashAfter=2), tmp_path) as sim:
        statuses = [(await sim.ask(CHAT, a_request())).status for _ in range(2)]

        assert await sim.process.wait() == -signal.SIGSEGV
    assert statuses == [200, 200]


async def test_an_operators_own_command_is_served_with_its_placeholders_filled(tmp_path: Path) -> None:
    words = ("-m", "engines.sim", "--host", "{host}", "--port", "{port}", "--key-file", "{keyFile}", "--model={model}")
    root = str(Path(__file__).parents[3])
    # The interpreter of the tests, not python3 of the PATH: it has the libraries.
    command = ("/usr/bin/env", f"PYTHONPATH={root}", sys.executable, *words)
    spec = EngineSpec("r", "command", ("m",), 0, command=command, health_url="http://{host}:{port}/health")

    async with running(spec, tmp_path) as engine:
        answer = await engine.ask(CHAT, a_request(model="m"))
        refused = await engine.ask(CHAT, a_request(model="m"), key="wrong")

    assert (answer.status, refused.status) == (200, 401)


async def test_it_refuses_to_start_with_a_reason_in_its_log(tmp_path: Path) -> None:
    async with running(a_sim(refuseStart=True), tmp_path, wait=False) as sim:
        assert await sim.process.wait() == 1
        assert "sim_refuses_start" in sim.log.read_text()


async def test_an_empty_key_file_does_not_open_it_to_everybody(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# no key\n\n")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "engines.sim", "--key-file", str(tmp_path / "empty")),
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()

    assert process.returncode == 1
    assert b"holds no key" in errors


async def test_sigterm_ends_it_cleanly_and_its_child_with_it(tmp_path: Path) -> None:
    async with running(a_sim(forkChild=True), tmp_path) as sim:
        child = child_pid(sim)
        sim.process.terminate()

        assert await sim.process.wait() == 0
        assert not is_alive(child)


async def test_a_killed_engine_leaves_its_child_behind(tmp_path: Path) -> None:
    async with running(a_sim(forkChild=True), tmp_path) as sim:
        child = child_pid(sim)
        sim.process.kill()
        await sim.process.wait()
        try:
            assert is_alive(child)
            assert os.getsid(child) == child
        finally:
            os.kill(child, signal.SIGKILL)


async def test_sigterm_can_be_ignored(tmp_path: Path) -> None:
    async with running(a_sim(ignoreTerm=True), tmp_path) as sim:
        sim.process.terminate()

        assert (await sim.ask(CHAT, a_request())).status == 200


async def test_ballast_is_resident(tmp_path: Path) -> None:
    async with running(a_sim(ballastMib=64), tmp_path) as sim:
        rss = next(line for line in Path(f"/proc/{sim.process.pid}/status").read_text().splitlines() if "VmRSS" in line)

    assert int(rss.split()[1]) > 64 << 10


def child_pid(sim: RunningEngine) -> int:
    return int(sim.log.read_text().rpartition("child_pid=")[2].split()[0])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


CALLS = [{"name": "look", "arguments": '{"at": "x"}'}, {"name": "wait"}]


@pytest.mark.parametrize(
    ("fields", "reason", "thought", "text", "calls"),
    [
        ({"sim": {"tokens": 3, "thinks": 2}}, "stop", "w0 w1 ", "w2 ", []),
        ({"sim": {"tokens": 1, "calls": CALLS}}, "tool_calls", "", "w0 ", ['{"at": "x"}', "{}"]),
        ({"sim": {"tokens": 2, "calls": CALLS}, "max_tokens": 1}, "length", "", "w0 ", []),
        ({"sim": {"tokens": 9}, "stop": ["x", "w2"]}, "stop", "", "w0 w1 ", []),
    ],
)
async def test_thoughts_tool_calls_and_stop_strings_can_be_scripted(
    fields: dict[str, object], reason: str, thought: str, text: str, calls: list[str], shared: EngineSpec
) -> None:
    async with client_of(shared) as sim:
        whole = json.loads((await sim.ask(CHAT, a_request(**fields))).body)["choices"][0]
        streamed = await sim.ask(CHAT, a_request(stream=True, **fields))

    deltas = [json.loads(event)["choices"][0] for event in events(streamed.body)[:-1]]
    said = [delta["delta"] for delta in deltas]
    pieces = [call for delta in said for call in delta.get("tool_calls", [])]
    assert whole["finish_reason"] == deltas[-1]["finish_reason"] == reason
    assert whole.get("stop_reason") == deltas[-1].get("stop_reason") == ("w2" if "stop" in fields else None)
    assert (whole["message"].get("reasoning_content", ""), whole["message"]["content"]) == (thought, text)
    assert "".join(delta.get("reasoning_content", "") for delta in said) == thought
    assert "".join(delta.get("content", "") for delta in said) == text
    assert [call["function"]["arguments"] for call in whole["message"].get("tool_calls", [])] == calls
    joined = ["".join(p["function"]["arguments"] for p in pieces if p["index"] == n) for n in range(len(calls))]
    assert joined == calls
