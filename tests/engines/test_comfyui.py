"""ComfyUI itself, on the processor, behind its gate: what the fake of the gate's other tests only says after it.

`LLMGW_TEST_COMFYUI` names a source archive; `LLMGW_TEST_STATE` a folder that keeps the build between clones.
"""

import asyncio
import json
from pathlib import Path

import pytest

from engines.adapter import Build, EngineSpec, NodeFacts
from engines.registry import get_adapter
from tests.engines.promises import check_flags
from tests.fakes.comfyui import CLASSES
from tests.integration.gates.bench import Bench, Json

pytestmark = pytest.mark.engine

ADAPTER = get_adapter("comfyui")
PATIENCE_S = 240.0


def a_picture(width: int = 64) -> Json:
    return {
        "1": {"class_type": "EmptyImage", "inputs": {"width": width, "height": 48, "batch_size": 1, "color": 255}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "art"}},
    }


def a_long_one(blurs: int = 400) -> Json:
    """Minutes of work on a processor, in steps of less than a second."""
    blur = {"blur_radius": 15, "sigma": 5.0}
    graph: Json = {
        "0": {"class_type": "EmptyImage", "inputs": {"width": 512, "height": 512, "batch_size": 1, "color": 9}}
    }
    for at in range(1, blurs + 1):
        graph[str(at)] = {"class_type": "ImageBlur", "inputs": {"image": [str(at - 1), 0], **blur}}
    return graph | {"end": {"class_type": "PreviewImage", "inputs": {"images": [str(blurs), 0]}}}


class RealBench(Bench):
    """The gate before ComfyUI, as the adapter starts it."""

    def __init__(self, folder: Path, build: Build) -> None:
        super().__init__(folder)
        self._build = build

    async def start_engine(self) -> None:
        spec = EngineSpec("art", "comfyui", ("art",), self.engine_port, home=self.folder)
        command = ADAPTER.build_command(spec, self._build, NodeFacts(cpu_count=2, memory_total_mib=4096))
        for folder in command.folders:
            Path(folder).mkdir(parents=True, exist_ok=True)
        for path, text in command.files:
            Path(path).write_text(text)
        with open(self.folder / "log", "ab") as log:
            self.engine = await asyncio.create_subprocess_exec(
                *command.argv, env=dict(command.environment), cwd=self.folder, stdout=log, stderr=log
            )
        await self._answering(f"{self.engine_url}/system_stats", within_s=PATIENCE_S)


def files_in(folder: Path) -> dict[str, float]:
    return {str(path): path.lstat().st_mtime for path in folder.rglob("*")}


def test_it_has_every_flag_that_the_adapter_may_use(comfyui: Build, tmp_path: Path) -> None:
    check_flags(ADAPTER, comfyui, tmp_path)


# A start under load takes longer than a test's event loop may live, so this one brings its own.
def test_its_work_is_done_told_kept_apart_and_ended_through_the_gate(comfyui: Build, tmp_path: Path) -> None:
    assert comfyui.folder is not None
    before = files_in(comfyui.folder)

    async def everything() -> None:
        bench = RealBench(tmp_path, comfyui)
        async with bench:
            await computes_where_it_says(bench)
            await a_prompt_is_heard_and_its_file_is_the_callers(bench)
            await a_broken_one_is_told_in_its_own_words(bench)
            await what_runs_is_ended_and_what_waits_is_taken_back(bench)
            await an_upload_can_be_used(bench)
            await the_fakes_classes_are_those_of_the_real_one(bench)

    asyncio.run(everything())
    assert files_in(comfyui.folder) == before


async def computes_where_it_says(bench: RealBench) -> None:
    async with bench.session.get(f"{bench.engine_url}/system_stats") as answer:
        told = await answer.json()
    assert [device["type"] for device in told["devices"]] == ["cpu"]
    assert (await bench.ada.ask("GET", "/v1/models"))[0] == 200
    assert (await bench.ada.ask("GET", "/system_stats"))[0] == 404


async def a_prompt_is_heard_and_its_file_is_the_callers(bench: RealBench) -> None:
    ada, bob = bench.ada, bench.bob
    async with ada.listen("mine") as ear:
        prompt_id = await ada.prompt(a_picture(), client_id="mine")
        assert await ear.until_over(prompt_id) == "execution_success"
        assert {"execution_start", "executed"} <= set(ear.kinds())
    told = await ada.until_state(prompt_id, "done")
    assert (told["percent"], told["nodesDone"], told["error"]) == (100.0, 2, None)
    history = (await ada.ask("GET", f"/history/{prompt_id}"))[1][prompt_id]
    (image,) = history["outputs"]["2"]["images"]
    assert history["status"]["completed"] is True and image["subfolder"] == ada.mark
    query = "&".join(f"{key}={image[key]}" for key in ("filename", "subfolder", "type"))
    status, data = await ada.ask("GET", f"/view?{query}")
    assert status == 200 and data.startswith(b"\x89PNG\r\n\x1a\n")
    assert (await bob.ask("GET", f"/view?{query}"))[0] == 404
    assert (await bob.ask("GET", f"/history/{prompt_id}"))[0] == 404
    status, answer = await ada.ask("POST", "/v1/workflows", {"model": "art", "prompt": a_picture(65)})
    assert status == 200, answer


async def a_broken_one_is_told_in_its_own_words(bench: RealBench) -> None:
    graph = a_picture()
    graph["1"]["inputs"]["width"] = "wide"
    status, told = await bench.ada.ask("POST", "/prompt", {"prompt": graph})
    assert status == 400 and told["error"]["code"] == "workflow_invalid", told
    assert told["node_errors"]["1"]["class_type"] == "EmptyImage"


async def what_runs_is_ended_and_what_waits_is_taken_back(bench: RealBench) -> None:
    ada, bob = bench.ada, bench.bob
    at_work, waiting, others = (
        await ada.prompt(a_long_one()),
        await ada.prompt(a_picture(66)),
        await bob.prompt(a_picture(67)),
    )
    told = await ada.until(at_work, lambda p: p["nodesDone"] > 1)
    assert told["state"] == "running" and told["node"]["classType"] == "ImageBlur" and 0 < told["percent"] < 100
    assert (await bob.until_state(others, "queued"))["ahead"] == 2
    assert (await bob.ask("POST", "/interrupt", {"prompt_id": at_work}))[0] == 404
    assert (await ada.ask("POST", "/queue", {"delete": [waiting]}))[0] == 200
    assert (await ada.ask("POST", "/interrupt", {"prompt_id": at_work}))[0] == 200
    assert (await ada.until_state(at_work, "cancelled"))["error"] is None
    await ada.until_state(waiting, "cancelled")
    await bob.until_state(others, "done")


async def an_upload_can_be_used(bench: RealBench) -> None:
    made = await bench.ada.prompt(a_picture(68))
    await bench.ada.until_state(made, "done")
    (image,) = (await bench.ada.ask("GET", f"/history/{made}"))[1][made]["outputs"]["2"]["images"]
    query = "&".join(f"{key}={image[key]}" for key in ("filename", "subfolder", "type"))
    picture = (await bench.ada.ask("GET", f"/view?{query}"))[1]
    name = (await bench.ada.upload(picture))["name"]
    graph = {
        "1": {"class_type": "LoadImage", "inputs": {"image": name}},
        "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
    }
    await bench.ada.until_state(await bench.ada.prompt(graph), "done")


async def the_fakes_classes_are_those_of_the_real_one(bench: RealBench) -> None:
    """What the fake says of a class that ComfyUI has, too, must be said by ComfyUI itself."""
    status, shown = await bench.ada.ask("GET", "/object_info")
    assert status == 200 and {"EmptyImage", "SaveImage", "PreviewImage", "LoadImage", "KSampler"} <= shown.keys()
    async with bench.session.get(f"{bench.engine_url}/object_info") as answer:
        whole = json.loads(await answer.read())
    for name in CLASSES.keys() & whole.keys():
        assert whole[name]["python_module"].split(".")[0] == CLASSES[name]["python_module"].split(".")[0], name
        assert bool(whole[name].get("output_node")) is bool(CLASSES[name].get("output_node")), name
        assert CLASSES[name]["input"]["required"].keys() <= whole[name]["input"]["required"].keys(), name
