"""The callers' websockets at ComfyUI's gate: each hears of its own prompts, in ComfyUI's words, and of nothing else."""

import asyncio
import contextlib
import socket
from pathlib import Path

import aiohttp
import pytest

from engines.gates.comfyui.sockets import MAX_OF_CALLER
from tests.integration.gates.bench import KEY, handshake, long_picture, picture, running

_PATIENCE_S = 30.0
_PREVIEW = b"\0\0\0\1\0\0\0\1"


async def test_a_prompt_is_heard_from_its_start_to_its_result(tmp_path: Path) -> None:
    hold = tmp_path / "go"
    hold.touch()
    async with running(tmp_path) as bench, bench.ada.listen("mine") as ear:
        assert ear.heard[0]["data"] == {"status": {"exec_info": {"queue_remaining": 0}}, "sid": "mine"}
        prompt_id = await bench.ada.prompt(long_picture(hold, steps=3), client_id="mine")
        assert await ear.until_over(prompt_id) == "execution_success"
        # What is told as over can be asked for.
        history = (await bench.ada.ask("GET", f"/history/{prompt_id}"))[1]
        (executed,) = [said["data"] for said in ear.heard if said["type"] == "executed"]
        assert executed["output"] == history[prompt_id]["outputs"]["3"]
        assert [said["data"]["value"] for said in ear.heard if said["type"] == "progress"] == [1, 2, 3]
        assert all(said["data"]["prompt_id"] == prompt_id for said in ear.heard if said["type"] != "status")
        assert (await ear.until("status"))["data"]["status"]["exec_info"]["queue_remaining"] == 0
        assert {frame.removeprefix(_PREVIEW).split()[0].decode() for frame in ear.pictures} <= {prompt_id}


@pytest.mark.parametrize("version", ["0.3.64", "0.3.10"])
async def test_previews_reach_the_caller_of_their_prompt_only(tmp_path: Path, version: str) -> None:
    holds = [tmp_path / "a", tmp_path / "b"]
    async with running(tmp_path, version=version) as bench, bench.ada.listen() as ada, bench.bob.listen() as bob:
        first = await bench.ada.prompt(long_picture(holds[0]))
        second = await bench.bob.prompt(long_picture(holds[1]))
        async with asyncio.timeout(_PATIENCE_S):
            while not ada.pictures:
                await ada.next()
            holds[0].touch()
            assert await ada.until_over(first) == "execution_success"
            while not bob.pictures:
                await bob.next()
        holds[1].touch()
        assert await bob.until_over(second) == "execution_success"
        for ear, prompt_id in ((ada, first), (bob, second)):
            assert ear.pictures[0] == _PREVIEW + f"{prompt_id} 1".encode()
            assert {frame[8:].split()[0].decode() for frame in ear.pictures} == {prompt_id}
            assert ear.prompts() == {prompt_id}


async def test_a_socket_with_a_name_hears_of_the_prompts_under_that_name(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        ada = bench.ada
        async with (
            ada.listen("one") as one,
            ada.listen("two") as two,
            ada.listen() as every,
            bench.bob.listen("one") as bob,
        ):
            first, second = await ada.prompt(picture(), client_id="one"), await ada.prompt(picture(), client_id="two")
            third = await ada.prompt(picture())
            for ear, prompt_ids in ((one, [first]), (two, [second]), (every, [first, second, third])):
                for prompt_id in prompt_ids:
                    assert await ear.until_over(prompt_id) == "execution_success"
                assert {said["data"]["prompt_id"] for said in ear.heard if "prompt_id" in said["data"]} == set(
                    prompt_ids
                )
            own = await bench.bob.prompt(picture(), client_id="one")
            assert await bob.until_over(own) == "execution_success"
            assert bob.prompts() == {own}
            assert {kind for kind in bob.kinds()} <= {
                "status", "execution_start", "execution_cached", "executing", "executed", "execution_success",
            }  # fmt: skip


async def test_numbers_are_the_callers_own(tmp_path: Path) -> None:
    async with running(tmp_path) as bench, bench.bob.listen() as bob:
        for _ in range(3):
            await bench.ada.prompt(long_picture(tmp_path / "never"))
        waiting = await bench.bob.prompt(picture())
        assert (await bob.until("status"))["data"]["status"]["exec_info"]["queue_remaining"] == 1
        assert await bench.bob.ask("GET", "/prompt") == (200, {"exec_info": {"queue_remaining": 1}})
        await bench.bob.ask("POST", "/queue", {"delete": [waiting]})
        assert await bob.until_over(waiting) == "execution_interrupted"
        assert (await bob.until("status"))["data"]["status"]["exec_info"]["queue_remaining"] == 0
        assert bob.kinds() == ["status", "status", "execution_interrupted", "executing", "status"]


async def test_a_failure_says_why_and_not_where_on_the_machine(tmp_path: Path) -> None:
    async with running(tmp_path) as bench, bench.ada.listen() as ear:
        prompt_id = await bench.ada.prompt({"1": {"class_type": "Fail", "inputs": {}}})
        assert await ear.until_over(prompt_id) == "execution_error"
        told = ear.heard[-2]["data"]
        assert (told["exception_message"], told["node_id"]) == ("out of memory", "1")
        assert "secret" not in str(ear.heard)


async def test_a_killed_engine_ends_the_prompt_and_not_the_socket(tmp_path: Path) -> None:
    async with running(tmp_path) as bench, bench.ada.listen() as ear:
        prompt_id = await bench.ada.prompt(long_picture(tmp_path / "never"))
        await ear.until("progress")
        await bench.kill(bench.engine)
        await bench.start_engine()
        assert await ear.until_over(prompt_id) == "execution_error"
        assert ear.heard[-2]["data"]["exception_type"] == "engine_lost"
        status, told = await bench.ada.ask("GET", f"/progress/{prompt_id}")
        assert (status, told["state"], told["error"]["code"]) == (200, "failed", "engine_lost")
        again = await bench.ada.prompt(picture())
        assert await ear.until_over(again) == "execution_success"


async def test_a_killed_gate_finds_its_callers_socket_again(tmp_path: Path) -> None:
    hold = tmp_path / "go"
    async with running(tmp_path) as bench:
        async with bench.ada.listen("mine") as ear:
            prompt_id = await bench.ada.prompt(long_picture(hold), client_id="mine")
            await ear.until("progress")
            await bench.kill(bench.gate)
            message = await asyncio.wait_for(ear.socket.receive(), _PATIENCE_S)
            while message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                message = await asyncio.wait_for(ear.socket.receive(), _PATIENCE_S)
        await bench.start_gate()
        async with bench.ada.listen("mine") as ear, bench.bob.listen("mine") as other:
            hold.touch()
            assert await ear.until_over(prompt_id) == "execution_success"
            (executed,) = [said["data"] for said in ear.heard if said["type"] == "executed"]
            assert executed["output"]["images"][0]["filename"] == "slow_00001_.png"
            await bench.bob.ask("GET", "/queue")
            assert other.kinds() == ["status"] and other.pictures == []


async def test_who_comes_in_the_middle_hears_which_node_runs(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        prompt_id = await bench.ada.prompt(long_picture(tmp_path / "never"))
        await bench.ada.until(prompt_id, lambda told: told["step"] == 1)
        async with bench.ada.listen() as ear:
            told = await ear.until("executing")
            assert told["data"] == {"node": "2", "display_node": "2", "prompt_id": prompt_id}


async def test_what_clients_say_means_nothing_but_the_question_for_features(tmp_path: Path) -> None:
    async with running(tmp_path) as bench, bench.ada.listen() as ear:
        for said in ("", "{}", '{"type": "feature_flags", "data": {"supports_preview_metadata": true}}', "[", "\x00"):
            await ear.socket.send_str(said)
        await ear.socket.send_bytes(b"\0\0\0\1\0\0\0\1x")
        assert (await ear.until("feature_flags"))["data"] == {"supports_preview_metadata": False}
        for _ in range(50):
            await ear.socket.send_str('{"type": "feature_flags", "data": {}}')
        prompt_id = await bench.ada.prompt(picture())
        await ear.until_over(prompt_id)
        assert ear.kinds().count("feature_flags") == 1


async def test_nobody_without_the_key_is_upgraded(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        for path in ("/ws", "/api/ws", "/ws?clientId=x"):
            for headers in ({}, {"authorization": "Bearer no"}, {"authorization": f"Basic {KEY}"}, {"x-api-key": ""}):
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await bench.session.ws_connect(bench.url + path, headers=headers)
                assert refused.value.status == 401
        async with bench.ada.listen(path="/api/ws") as ear:
            assert ear.kinds() == ["status"]


ODD: list[tuple[str, dict[str, str], int]] = [
    ("/ws?clientId=a%20b", {}, 400), ("/ws?clientId=" + "a" * 129, {}, 400), ("/ws?clientId=a&clientId=b", {}, 400),
    ("/ws?clientid=a", {}, 400), ("/ws?token=x", {}, 400), ("/ws?clientId=%ff", {}, 400), ("/ws/", {}, 404),
    ("//ws", {}, 404), ("/%77s", {}, 404), ("/./ws", {}, 404), ("/api/../ws", {}, 404), ("/WS", {}, 404),
    ("/api/api/ws", {}, 404), ("/ws;x", {}, 404), ("/ws%00", {}, 404), ("/queue", {}, 200),
    ("/ws", {"x-llmgw-caller": "../x"}, 400), ("/ws", {"x-llmgw-caller": ""}, 400),
]  # fmt: skip


async def test_odd_requests_for_a_websocket_are_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        for target, more, status in ODD:
            reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
            writer.write(handshake(target, {**bench.ada.headers, **more}))
            line = await asyncio.wait_for(reader.readline(), _PATIENCE_S)
            assert int(line.split()[1]) == status, (target, more)
            writer.close()


async def test_sockets_of_one_caller_are_counted_and_leave_others_theirs(tmp_path: Path) -> None:
    async with running(tmp_path) as bench, contextlib.AsyncExitStack() as stack:
        ears = [await stack.enter_async_context(bench.ada.listen()) for _ in range(MAX_OF_CALLER)]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await bench.session.ws_connect(f"{bench.url}/ws", headers=bench.ada.headers)
        assert refused.value.status == 429
        async with bench.bob.listen() as bob:
            await ears[0].socket.close()
            await bench.until_sockets(MAX_OF_CALLER)
            async with bench.ada.listen() as again:
                prompt_id = await bench.ada.prompt(picture())
                assert await again.until_over(prompt_id) == "execution_success"
            assert bob.kinds() == ["status"]


async def test_a_caller_that_reads_nothing_is_hung_up_on_and_nobody_waits_for_it(tmp_path: Path) -> None:
    hold = tmp_path / "go"
    hold.touch()
    loop = asyncio.get_running_loop()
    async with running(tmp_path) as bench, bench.bob.listen() as bob:
        with socket.socket() as deaf:
            deaf.setblocking(False)
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            await loop.sock_connect(deaf, ("127.0.0.1", bench.port))
            await loop.sock_sendall(deaf, handshake("/ws", bench.ada.headers))
            assert b" 101 " in await asyncio.wait_for(loop.sock_recv(deaf, 100), _PATIENCE_S)
            await bench.until_sockets(2)
            graph = long_picture(hold, steps=8000)
            graph["x" * 2000] = graph.pop("2")  # so that what is told is more than the kernel takes for a reader
            graph["3"]["inputs"]["images"] = ["x" * 2000, 0]
            many = await bench.ada.prompt(graph)
            await bench.until_sockets(1)
            await bench.ada.until_state(many, "done")
        own = await bench.bob.prompt(picture())
        assert await bob.until_over(own) == "execution_success"
        assert bob.prompts() == {own}


async def test_a_caller_that_reads_is_not_hung_up_on_by_a_burst(tmp_path: Path) -> None:
    hold = tmp_path / "go"
    hold.touch()
    async with running(tmp_path) as bench, bench.ada.listen() as ear:
        prompt_id = await bench.ada.prompt(long_picture(hold, steps=8000))
        assert await ear.until_over(prompt_id) == "execution_success"
        values = [said["data"]["value"] for said in ear.heard if said["type"] == "progress"]
        # The result may be there before the last steps are heard of, and then they are not told.
        assert values == list(range(1, len(values) + 1))


async def test_a_gate_that_stops_says_so(tmp_path: Path) -> None:
    async with running(tmp_path) as bench, bench.ada.listen() as ear:
        assert bench.gate is not None
        bench.gate.terminate()
        message = await asyncio.wait_for(ear.socket.receive(), _PATIENCE_S)
        assert (message.type, ear.socket.close_code) == (aiohttp.WSMsgType.CLOSE, 1001)
        assert await bench.gate.wait() == 0
