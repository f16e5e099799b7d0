"""ComfyUI's gate before a fake ComfyUI, as real processes: work, progress, and what two callers see of each other."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.integration.gates.bench import KEY, Json, long_picture, picture, running


async def test_a_prompt_is_run_and_its_result_is_the_callers(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        ada = bench.ada
        prompt_id = await ada.prompt(picture(), client_id="mine", prompt_id="mine-too")
        told = await ada.until_state(prompt_id, "done")
        assert (told["percent"], told["nodes"], told["nodesDone"], told["ahead"]) == (100.0, 2, 2, None)
        status, history = await ada.ask("GET", f"/history/{prompt_id}")
        assert status == 200 and history[prompt_id]["status"]["completed"] is True
        (image,) = history[prompt_id]["outputs"]["2"]["images"]
        assert image["subfolder"] == ada.mark
        query = f"filename={image['filename']}&subfolder={image['subfolder']}&type={image['type']}"
        assert await ada.ask("GET", f"/view?{query}") == (200, b"\x89PNG\r\n\x1a\nfake")
        assert prompt_id != "mine-too"


async def test_progress_tells_who_is_ahead_then_node_step_and_percent(tmp_path: Path) -> None:
    hold = tmp_path / "go"
    async with running(tmp_path) as bench:
        ada, bob = bench.ada, bench.bob
        first = await ada.prompt(long_picture(hold))
        second, third = await bob.prompt(picture()), await ada.prompt(picture())
        told = await ada.until(first, lambda p: p["step"] is not None)
        assert told == {
            "promptId": first, "state": "running", "ahead": None, "node": {"id": "2", "classType": "Sampler"},
            "step": 1, "steps": 4, "nodesDone": 1, "nodes": 3, "percent": 41.7, "error": None,
        }  # fmt: skip
        assert [(await who.until_state(what, "queued"))["ahead"] for who, what in ((bob, second), (ada, third))] == [
            1,
            2,
        ]
        hold.touch()
        for who, what in ((ada, first), (bob, second), (ada, third)):
            await who.until_state(what, "done")


async def test_two_callers_never_see_each_others_work(tmp_path: Path) -> None:
    hold = tmp_path / "go"
    async with running(tmp_path) as bench:
        ada, bob = bench.ada, bench.bob
        done = await ada.prompt(picture() | {"3": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}})
        await ada.until_state(done, "done")
        at_work, waiting = await ada.prompt(long_picture(hold)), await ada.prompt(picture())
        await ada.until_state(at_work, "running")
        outputs = (await ada.ask("GET", f"/history/{done}"))[1][done]["outputs"]

        assert await bob.ask("GET", "/queue") == (200, {"queue_running": [], "queue_pending": []})
        assert await bob.ask("GET", "/history") == (200, {})
        for prompt_id in (done, at_work, waiting):
            for path in ("/history", "/progress"):
                status, told = await bob.ask("GET", f"{path}/{prompt_id}")
                assert (status, told["error"]["code"]) == (404, "prompt_unknown")
        for images in (outputs["2"]["images"], outputs["3"]["images"]):
            query = "&".join(f"{k}={images[0][k]}" for k in ("filename", "subfolder", "type"))
            assert (await ada.ask("GET", f"/view?{query}"))[0] == 200
            assert (await bob.ask("GET", f"/view?{query}"))[0] == 404
        queue = (await ada.ask("GET", "/queue"))[1]
        assert [queue[key][0][1] for key in ("queue_running", "queue_pending")] == [at_work, waiting]
        assert queue["queue_running"][0][2:] == [{}, {}, []]


async def test_two_callers_never_stop_each_others_work(tmp_path: Path) -> None:
    hold = tmp_path / "go"
    async with running(tmp_path) as bench:
        ada, bob = bench.ada, bench.bob
        at_work, waiting = await ada.prompt(long_picture(hold)), await ada.prompt(picture())
        await ada.until_state(at_work, "running")
        assert (await bob.ask("POST", "/interrupt", {"prompt_id": at_work}))[0] == 404
        assert (await bob.ask("POST", "/interrupt"))[0] == 200
        assert (await bob.ask("POST", "/interrupt", {}))[0] == 200
        assert (await bob.ask("POST", "/queue", {"delete": [waiting]}))[0] == 404
        assert (await bob.ask("POST", "/queue", {"clear": True}))[0] == 400
        assert (await bob.ask("POST", "/queue", {"delete": [], "clear": True}))[0] == 400
        assert not [line for line in await bench.asked() if line.startswith(("POST /interrupt", "POST /queue"))]
        hold.touch()
        assert (await ada.until_state(waiting, "done"))["state"] == "done"
        assert (await ada.until_state(at_work, "done"))["state"] == "done"


async def test_a_caller_stops_what_runs_and_takes_back_what_waits(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        ada, bob = bench.ada, bench.bob
        at_work = await ada.prompt(long_picture(tmp_path / "never"))
        waiting, others = await ada.prompt(picture()), await bob.prompt(picture())
        await ada.until_state(at_work, "running")
        assert (await ada.ask("POST", "/queue", {"delete": [waiting]}))[0] == 200
        await ada.until_state(waiting, "cancelled")
        assert (await ada.ask("POST", "/interrupt", {"prompt_id": at_work}))[0] == 200
        told = await ada.until_state(at_work, "cancelled")
        assert told["error"] is None
        await bob.until_state(others, "done")


async def test_an_older_comfyui_is_not_interrupted_since_another_might_be_hit(tmp_path: Path) -> None:
    async with running(tmp_path, version="0.3.10") as bench:
        prompt_id = await bench.ada.prompt(long_picture(tmp_path / "never"))
        await bench.ada.until_state(prompt_id, "running")
        status, told = await bench.ada.ask("POST", "/interrupt", {"prompt_id": prompt_id})
        assert (status, told["error"]["code"]) == (409, "interrupt_unsafe")
        assert not [line for line in await bench.asked() if line.startswith("POST /interrupt")]


async def test_nobody_jumps_the_queue(tmp_path: Path) -> None:
    hold = tmp_path / "go"
    async with running(tmp_path) as bench:
        ada, bob = bench.ada, bench.bob
        first, second = await ada.prompt(long_picture(hold)), await ada.prompt(picture())
        await ada.until_state(first, "running")
        third = await bob.prompt(picture(), front=True, number=-1000)
        async with bench.session.get(f"{bench.engine_url}/queue") as answer:
            assert [entry[1] for entry in (await answer.json())["queue_pending"]] == [second, third]
        hold.touch()
        await bob.until_state(third, "done")


async def test_a_workflow_is_answered_at_its_end_with_its_files(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        body = {"model": "art", "prompt": picture("../../x/../cat")}
        status, told = await bench.ada.ask("POST", "/v1/workflows", body)
        assert (status, told["status"], told["model"]) == (200, "done", "art")
        (file,) = told["files"]
        assert file == {"node": "2", "filename": "cat_00001_.png", "subfolder": f"{bench.ada.mark}/x", "type": "output"}
        assert (bench.base / "output" / bench.ada.mark / "x" / "cat_00001_.png").is_file()


async def test_a_workflow_can_be_followed_under_the_requests_id(tmp_path: Path) -> None:
    hold = tmp_path / "go"
    async with running(tmp_path) as bench:
        body = {"model": "art", "prompt": long_picture(hold)}
        asking = asyncio.create_task(bench.ada.ask("POST", "/v1/workflows", body, **{"x-llmgw-handle": "req-1"}))
        told = await bench.ada.until("req-1", lambda p: p["step"] == 1)
        assert (told["state"], told["node"]["classType"]) == ("running", "Sampler")
        assert (await bench.bob.ask("GET", "/progress/req-1"))[0] == 404
        hold.touch()
        assert (await asking)[0] == 200


@pytest.mark.parametrize("when", ["running", "queued"])
async def test_who_leaves_a_workflow_ends_it(tmp_path: Path, when: str) -> None:
    async with running(tmp_path) as bench:
        if when == "queued":
            await bench.bob.prompt(long_picture(tmp_path / "never"))
        body = {"model": "art", "prompt": long_picture(tmp_path / "never too")}
        asking = asyncio.create_task(bench.ada.ask("POST", "/v1/workflows", body, **{"x-llmgw-handle": "req"}))
        await bench.ada.until_state("req", when)
        asking.cancel()
        await bench.ada.until_state("req", "cancelled")


async def test_a_failed_workflow_says_why_and_not_where_on_the_machine(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        graph: Json = {"1": {"class_type": "Fail", "inputs": {}}}
        status, told = await bench.ada.ask("POST", "/v1/workflows", {"model": "art", "prompt": graph})
        assert (status, told["error"]["code"]) == (422, "workflow_failed")
        assert "out of memory" in told["error"]["message"]
        assert "secret" not in str(told) + str(await bench.ada.ask("GET", "/history"))


async def test_comfyuis_own_refusal_reaches_the_caller_without_its_files(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        graph: Json = {"1": {"class_type": "EmptyImage", "inputs": {"width": "wide"}}}
        for path in ("/prompt", "/v1/workflows"):
            status, told = await bench.ada.ask("POST", path, {"prompt": graph})
            assert (status, told["error"]["type"]) == (400, "prompt_outputs_failed_validation")
            assert told["node_errors"]["1"]["errors"][0]["message"] == "bad width"
            assert "secret" not in str(told)


async def test_an_upload_is_the_callers_own_and_nothing_is_overwritten(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        names = []
        for content in (b"one", b"two"):
            told = await bench.ada.upload(content)
            assert (told["subfolder"], told["type"]) == (bench.ada.mark, "input")
            names.append(told["name"])
        assert names == ["photo.png", "photo (1).png"]
        graph = picture() | {"3": {"class_type": "LoadImage", "inputs": {"image": "photo (1).png"}}}
        prompt_id = await bench.ada.prompt(graph)
        await bench.ada.until_state(prompt_id, "done")
        async with bench.session.get(f"{bench.engine_url}/history") as answer:
            sent = (await answer.json())[prompt_id]["prompt"][2]
        assert sent["3"]["inputs"]["image"] == f"{bench.ada.mark}/photo (1).png"
        query = f"filename=photo.png&subfolder={bench.ada.mark}&type=input"
        assert await bench.ada.ask("GET", f"/view?{query}") == (200, b"one")
        assert (await bench.bob.ask("GET", f"/view?{query}"))[0] == 404


HOSTILE_UPLOADS: list[tuple[dict[str, str], str]] = [
    ({"overwrite": "true"}, "a.png"), ({"overwrite": "1"}, "a.png"), ({"subfolder": "../output"}, "a.png"),
    ({"subfolder": "c-other"}, "a.png"), ({"type": "output"}, "a.png"), ({"type": "temp"}, "a.png"),
    ({"original_ref": "{}"}, "a.png"), ({}, "../a.png"), ({}, "/etc/a.png"), ({}, "a/b.png"), ({}, ".png"),
    ({}, "a.html"), ({}, "a.svg"), ({}, "a"), ({}, "a.png\\..\\b.png"), ({}, "a.py"), ({}, "a.png [output]"),
    ({}, "x" * 300 + ".png"),
]  # fmt: skip


async def test_a_hostile_upload_reaches_nobody(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        for fields, filename in HOSTILE_UPLOADS:
            form = aiohttp.FormData(fields, quote_fields=False)
            form.add_field("image", b"x", filename=filename, content_type="image/png")
            async with bench.session.post(f"{bench.url}/upload/image", data=form, headers=bench.ada.headers) as answer:
                assert answer.status == 400, (fields, filename, await answer.text())
        assert not [line for line in await bench.asked() if "upload" in line]


async def test_the_classes_that_are_shown_are_those_that_may_be_used(tmp_path: Path) -> None:
    async with running(tmp_path, "--node", "RunPython") as bench:
        status, told = await bench.ada.ask("GET", "/object_info")
        assert status == 200
        expected = {"EmptyImage", "Sampler", "Fail", "SaveImage", "PreviewImage", "LoadImage", "RunPython"}
        assert set(told) == expected
        assert told["LoadImage"]["input"]["required"]["image"] == [[], {"image_upload": True}]
        assert "secret" not in str(told)
        assert await bench.ada.ask("GET", "/object_info/SaveImage") == (200, {"SaveImage": told["SaveImage"]})
        assert await bench.ada.ask("GET", "/object_info/PaidImage") == (200, {})


async def test_a_wrong_key_opens_nothing_and_health_is_open(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        for headers in (
            {},
            {"authorization": "Bearer no"},
            {"authorization": f"Basic {KEY}"},
            {"x-api-key": KEY + "x"},
        ):
            for path in ("/v1/models", "/queue", "/nothing", "/metrics"):
                async with bench.session.get(bench.url + path, headers=headers) as answer:
                    assert answer.status == 401
        async with bench.session.get(f"{bench.url}/health") as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ok"})
        async with bench.session.get(f"{bench.url}/v1/models", headers={"x-api-key": KEY}) as answer:
            assert [row["id"] for row in (await answer.json())["data"]] == ["art"]
