"""What callers keep at ComfyUI's gate is bounded, counted on the disk, and theirs to throw away; real processes."""

import asyncio
import io
import os
import time
from pathlib import Path
from typing import Any

import aiohttp

from tests.integration.gates.bench import Bench, Caller, Json, long_picture, picture, running

_PATIENCE_S = 30.0
_MIB = 1 << 20


async def upload(caller: Caller, size: int, name: str = "a.png") -> tuple[int, Any]:
    form = aiohttp.FormData()
    form.add_field("image", io.BytesIO(b"x" * size), filename=name, content_type="image/png")
    async with caller.session.post(f"{caller.url}/upload/image", data=form, headers=caller.headers) as answer:
        return answer.status, await answer.json()


async def files(caller: Caller) -> Json:
    status, told = await caller.ask("GET", "/files")
    assert status == 200, told
    return dict(told)


def put(bench: Bench, path: str, size: int, age_s: float = 0.0) -> Path:
    """A file in ComfyUI's folders, as a node or a killed upload leaves it."""
    place = bench.base / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"x" * size)
    os.utime(place, (time.time() - age_s,) * 2)
    return place


async def until_gone(*places: Path) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while any(place.exists() for place in places):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


async def test_a_caller_keeps_so_much_and_is_told_how_much(tmp_path: Path) -> None:
    async with running(tmp_path, "--caller-files-mib", "2") as bench:
        ada, bob = bench.ada, bench.bob
        assert (await upload(ada, _MIB))[0] == 200
        status, told = await upload(ada, _MIB + 5000)
        assert (status, told["error"]["code"]) == (413, "files_over_limit")
        assert told["error"]["limit_bytes"] == 2 * _MIB and told["error"]["used_bytes"] >= _MIB
        assert (await upload(ada, _MIB - 5000, "b.png"))[0] == 200
        put(bench, f"output/{ada.mark}/left.png", 6000)
        status, told = await ada.ask("POST", "/prompt", {"prompt": picture()})
        assert (status, told["error"]["code"]) == (413, "files_over_limit")
        status, told = await ada.ask("POST", "/v1/workflows", {"prompt": picture(), "model": "art"})
        assert (status, told["error"]["code"]) == (413, "files_over_limit")
        # Others are not concerned, and looking, stopping and throwing away stay possible.
        await bob.until_state(await bob.prompt(picture()), "done")
        told = await files(ada)
        assert {file["filename"] for file in told["files"]} == {"a.png", "b.png", "left.png"}
        assert (told["count"], told["limit_bytes"], told["used_bytes"] > 2 * _MIB) == (3, 2 * _MIB, True)
        place = f"filename=a.png&subfolder={ada.mark}&type=input"
        assert (await bob.ask("DELETE", f"/view?{place}"))[0] == 404
        assert (await ada.ask("DELETE", f"/view?{place}"))[0] == 204
        assert (await ada.ask("DELETE", f"/view?{place}"))[0] == 404
        await ada.until_state(await ada.prompt(picture()), "done")
        assert (await files(bob))["count"] == 1


async def test_uploads_at_once_do_not_pass_together_what_they_may_not_alone(tmp_path: Path) -> None:
    async with running(tmp_path, "--caller-files-mib", "2") as bench:
        answers = await asyncio.gather(*(upload(bench.ada, 600_000, f"{n}.png") for n in range(8)))
        assert sorted(status for status, _ in answers) == [200] * 3 + [413] * 5
        assert (await files(bench.ada))["used_bytes"] <= 2 * _MIB


async def test_a_started_gate_counts_what_is_on_the_disk(tmp_path: Path) -> None:
    async with running(tmp_path, "--caller-files-mib", "2") as bench:
        uploading = asyncio.create_task(upload(bench.ada, _MIB))
        await bench.kill(bench.gate)
        await asyncio.gather(uploading, return_exceptions=True)
        put(bench, f"input/{bench.ada.mark}/half.png", 2 * _MIB)
        put(bench, os.fsdecode(b"output/%b/no-text-\xff.png" % bench.ada.mark.encode()), 1)
        await bench.start_gate()
        assert (await files(bench.ada))["used_bytes"] >= 2 * _MIB
        assert (await bench.ada.ask("POST", "/prompt", {"prompt": picture()}))[0] == 413
        assert (await bench.bob.ask("POST", "/prompt", {"prompt": picture()}))[0] == 200


async def test_files_that_are_old_go_and_those_of_a_running_prompt_stay(tmp_path: Path) -> None:
    async with running(tmp_path, "--keep-hours", "1") as bench:
        ada, bob = bench.ada, bench.bob
        prompt_id = await ada.prompt(long_picture(tmp_path / "never"))
        await ada.until_state(prompt_id, "running")
        needed = put(bench, f"input/{ada.mark}/needed.png", 10, age_s=7200)
        written = put(bench, f"output/{ada.mark}/now.png", 10)
        gone = [
            put(bench, path, 10, age_s=7200)
            for path in (f"output/{ada.mark}/old.png", f"input/{bob.mark}/old.png", f"output/{bob.mark}/x/y.png",
                         "temp/old.png")
        ]  # fmt: skip
        others = put(bench, "output/operators.png", 10, age_s=10**6)
        await until_gone(*gone)
        assert needed.exists() and written.exists() and others.exists()


async def test_all_files_together_are_bounded_and_the_oldest_results_go_first(tmp_path: Path) -> None:
    async with running(tmp_path, "--files-mib", "4") as bench:
        ada, bob = bench.ada, bench.bob
        oldest = put(bench, f"output/{ada.mark}/1.png", _MIB, age_s=300)
        older = put(bench, f"output/{bob.mark}/2.png", _MIB, age_s=200)
        own = put(bench, f"input/{ada.mark}/3.png", _MIB, age_s=400)
        assert (await upload(ada, 2 * _MIB, "new.png"))[0] == 200
        assert not oldest.exists() and own.exists()
        # What a prompt that is not over may need is not taken away for others.
        hold = tmp_path / "go"
        prompt_id = await ada.prompt(long_picture(hold))
        await ada.until_state(prompt_id, "running")
        assert (await upload(bob, _MIB, "b.png"))[0] == 200
        assert not older.exists()
        status, told = await upload(bob, _MIB + 5000, "c.png")
        assert (status, told["error"]["code"]) == (507, "files_full")
        assert told["error"]["limit_bytes"] == 4 * _MIB
        assert (await files(bob))["count"] == 1
        hold.touch()
        await ada.until_state(prompt_id, "done")
        assert (await upload(bob, _MIB + 5000, "c.png"))[0] == 200


async def test_a_prompt_that_writes_without_end_is_ended_and_says_why(tmp_path: Path) -> None:
    async with running(tmp_path, "--caller-files-mib", "1") as bench, bench.ada.listen() as ear:
        prompt_id = await bench.ada.prompt(long_picture(tmp_path / "never"))
        waiting, others = await bench.ada.prompt(picture()), await bench.bob.prompt(picture())
        await bench.ada.until_state(prompt_id, "running")
        put(bench, f"output/{bench.ada.mark}/endless.png", 2 * _MIB)
        for one in (prompt_id, waiting):
            told = await bench.ada.until_state(one, "failed")
            assert told["error"]["code"] == "files_over_limit"
        assert await ear.until_over(prompt_id) == "execution_error"
        assert (await bench.bob.until_state(others, "done"))["error"] is None


async def test_a_full_disk_is_said_and_the_gate_lives_on(tmp_path: Path) -> None:
    async with running(tmp_path, "--free-mib", str(10**9)) as bench:
        for status, told in (
            await upload(bench.ada, 10), await bench.ada.ask("POST", "/prompt", {"prompt": picture()}),
        ):  # fmt: skip
            assert (status, told["error"]["code"]) == (507, "files_full")
            assert "free" in told["error"]["message"]
        assert (await bench.ada.ask("GET", "/queue"))[0] == 200
        assert not [line for line in await bench.asked() if line.startswith("POST")]


async def test_a_disk_that_fills_up_under_the_ledger_is_said_and_mended_by_room(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        ledger = bench.folder / "state" / "ledger.jsonl"
        ledger.unlink()
        ledger.symlink_to("/dev/full")
        status, told = await bench.ada.ask("POST", "/prompt", {"prompt": picture()})
        assert (status, told["error"]["code"]) == (502, "disk_full")
        assert not [line for line in await bench.asked() if line.startswith("POST /prompt")]
        ledger.unlink()
        await bench.ada.until_state(await bench.ada.prompt(picture()), "done")
