"""One caller against all that another has, on every route: what is another's is as what does not exist."""

import asyncio
import contextlib
import io
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from core.caller import CALLER
from tests.integration.gates.bench import KEY, Bench, Caller, Json, long_picture, picture, running

_ABSENT = "absent"


@dataclass(frozen=True)
class Belongings:
    """What Ada has: ids, and places of files as the queries of `/view`."""

    done: str
    running: str
    queued: str
    handle: str
    places: tuple[str, ...]

    def ids(self) -> tuple[str, ...]:
        return (self.done, self.running, self.queued, self.handle)


async def settle_in(bench: Bench, hold: Path, stack: contextlib.AsyncExitStack) -> Belongings:
    """Ada has one prompt that is done (with a preview), one that runs, one that waits, a workflow, and an upload."""
    ada = bench.ada
    done = await ada.prompt(picture() | {"3": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}})
    await ada.until_state(done, "done")
    outputs = (await ada.ask("GET", f"/history/{done}"))[1][done]["outputs"]
    form = aiohttp.FormData()
    form.add_field("image", io.BytesIO(b"ada's"), filename="photo.png", content_type="image/png")
    async with bench.session.post(f"{bench.url}/upload/image", data=form, headers=ada.headers) as answer:
        uploaded = await answer.json()
    at_work = await ada.prompt(long_picture(hold), client_id="ada-socket")
    await ada.until(at_work, lambda told: told["step"] == 1)
    queued = await ada.prompt(picture())
    body = {"model": "art", "prompt": picture()}
    asking = asyncio.create_task(ada.ask("POST", "/v1/workflows", body, **{"x-llmgw-handle": "req-ada"}))
    stack.callback(asking.cancel)
    await ada.until("req-ada", lambda told: told["state"] == "queued")
    files: list[Json] = [*outputs["2"]["images"], *outputs["3"]["images"]]
    files.append({"filename": uploaded["name"], "subfolder": uploaded["subfolder"], "type": "input"})
    places = tuple("&".join(f"{key}={file[key]}" for key in ("filename", "subfolder", "type")) for file in files)
    return Belongings(done, at_work, queued, "req-ada", places)


def questions(name: str) -> list[tuple[str, str, object]]:
    """Every route that takes a prompt's name."""
    return [
        ("GET", f"/history/{name}", None), ("GET", f"/progress/{name}", None), ("GET", f"/api/history/{name}", None),
        ("POST", "/interrupt", {"prompt_id": name}), ("POST", "/queue", {"delete": [name]}),
        ("POST", "/api/queue", {"delete": [name]}), ("POST", "/api/interrupt", {"prompt_id": name}),
    ]  # fmt: skip


async def state_of(caller: Caller) -> list[Any]:
    """All that a caller can see of itself."""
    return [await caller.ask("GET", path) for path in ("/history", "/queue", "/files", "/prompt")]


@pytest.mark.parametrize("who", ["bob", "a caller without a mark"])
async def test_nothing_of_anothers_is_seen_stopped_or_changed(tmp_path: Path, who: str) -> None:
    hold = tmp_path / "go"
    async with running(tmp_path) as bench, contextlib.AsyncExitStack() as stack:
        own = await settle_in(bench, hold, stack)
        bob = bench.bob
        if who != "bob":
            bob.headers = {name: value for name, value in bob.headers.items() if name != CALLER}
            bob.mark = "direct"
        before, asked = await state_of(bench.ada), len(await bench.asked())
        absent = str(uuid.uuid4())

        for name in own.ids():
            for spelling in (name, name.upper(), name[:-1], name + "x", f" {name}", f"{name} ", name.replace("-", "")):
                for (method, path, body), (_, other, nothing) in zip(
                    questions(spelling), questions(absent), strict=True
                ):
                    status, told = await bob.ask(method, path, body)
                    # A space is no plain path, whoever asks.
                    if " " in path:
                        assert status == 404
                        continue
                    expected = await bob.ask(method, other, nothing)
                    words = str(told).replace(spelling, absent)
                    assert (status, words) == (expected[0], str(expected[1])), (method, path)
                    assert status == 404
        # One foreign id among one's own, and nothing happens.
        waits = await bob.prompt(picture())
        assert (await bob.ask("POST", "/queue", {"delete": [waits, own.queued]}))[0] == 404
        assert (await bob.ask("GET", f"/progress/{waits}"))[1]["state"] == "queued"
        assert (await bob.ask("POST", "/queue", {"delete": [waits]}))[0] == 200
        await bob.until_state(waits, "cancelled")

        for place in own.places:
            for method in ("GET", "DELETE"):
                status, told = await bob.ask(method, f"/view?{place}")
                nowhere = place.replace("filename=", f"filename={_ABSENT}")
                expected = await bob.ask(method, f"/view?{nowhere}")
                assert (status, str(told)) == (expected[0], str(expected[1]).replace(_ABSENT, "")), place
                assert status == 404
                moved = place.replace(bench.ada.mark, f"{bob.mark}/../{bench.ada.mark}")
                assert (await bob.ask(method, f"/view?{moved}"))[0] == 404 or moved == place

        assert (await bob.ask("POST", "/interrupt"))[0] == 200
        for body in ({"clear": True}, {"delete": [], "clear": True}, {"delete": own.queued}, {"Delete": [own.queued]}):
            assert (await bob.ask("POST", "/queue", body))[0] == 400
        for path in ("/free", "/history", "/settings", "/users", "/userdata", "/internal/logs", "/manager/reboot"):
            assert (await bob.ask("POST", path, {"clear": True, "unload_models": True}))[0] in (404, 405)
        async with bob.listen("ada-socket") as ear:
            await bob.ask("GET", "/queue")
            assert (ear.kinds(), ear.pictures) == (["status"], [])
            assert ear.heard[0]["data"]["status"]["exec_info"]["queue_remaining"] == 0
            hold.touch()
            await bench.ada.until_state(own.queued, "done")
            await bench.ada.until_state("req-ada", "done")
            mine = await bob.prompt(picture(), client_id="ada-socket", prompt_id=own.running)
            assert await ear.until_over(mine) == "execution_success"
            assert mine != own.running and ear.prompts() == {mine} and ear.pictures == []

        assert "POST /interrupt" not in (await bench.asked())[asked:]
        after = await state_of(bench.ada)
        assert set(before[0][1]) <= set(after[0][1])
        assert {file["filename"] for file in before[2][1]["files"]} <= {
            file["filename"] for file in after[2][1]["files"]
        }
        for place in own.places:
            assert (await bench.ada.ask("GET", f"/view?{place}"))[0] == 200


async def test_anothers_upload_is_neither_read_nor_written_over(tmp_path: Path) -> None:
    async with running(tmp_path) as bench, contextlib.AsyncExitStack() as stack:
        await settle_in(bench, tmp_path / "never", stack)
        ada, bob = bench.ada, bench.bob
        names = (
            f"{ada.mark}/photo.png", f"../{ada.mark}/photo.png", f"{bob.mark}/../{ada.mark}/photo.png",
            f"{ada.mark}\\photo.png", "photo.png [output]", "photo.png [temp]", "../../output/x.png",
        )  # fmt: skip
        for name in names:
            graph = picture() | {"3": {"class_type": "LoadImage", "inputs": {"image": name}}}
            status, told = await bob.ask("POST", "/prompt", {"prompt": graph})
            assert (status, told["error"]["code"]) == (400, "workflow_file_refused"), name
        form = aiohttp.FormData({"subfolder": ada.mark})
        form.add_field("image", b"bob's", filename="photo.png", content_type="image/png")
        async with bench.session.post(f"{bench.url}/upload/image", data=form, headers=bob.headers) as answer:
            assert answer.status == 400
        form = aiohttp.FormData()
        form.add_field("image", b"bob's", filename="photo.png", content_type="image/png")
        async with bench.session.post(f"{bench.url}/upload/image", data=form, headers=bob.headers) as answer:
            assert (await answer.json()) == {"name": "photo.png", "subfolder": bob.mark, "type": "input"}
        query = f"/view?filename=photo.png&type=input&subfolder={ada.mark}"
        assert await ada.ask("GET", query) == (200, b"ada's")
        # A prefix that names another's folder is a folder in one's own.
        prompt_id = await bob.prompt(picture(f"{ada.mark}/evil"))
        await bob.ask("POST", "/queue", {"delete": [prompt_id]})


async def test_a_mark_is_not_taken_from_two_headers_or_from_another_word(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        ada, bob = bench.ada.mark, bench.bob.mark
        for marks in ([bob, ada], [ada, ada], ["../x"], ["C-UPPER"], ["a b"], [""]):
            reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
            lines = "".join(f"{CALLER}: {mark}\r\n" for mark in marks)
            head = f"GET /queue HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n{lines}\r\n"
            writer.write(head.encode())
            assert int((await reader.read()).split(b" ", 2)[1]) == 400, marks
            writer.close()
