"""Weights from the web and from Hugging Face, against a server that drops, lies, hides and changes its mind."""

import asyncio
import hashlib
import os
import random
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from core.api import Progress
from core.errors import DependencyError, LlmgwError, NotFoundError, PermissionError_
from core.files import StorageError
from engines.download import DownloadFailed, DownloadMismatch
from engines.hub import Hub, choose_files
from engines.origins import Origins
from engines.sources import HubSource
from engines.weights import fetch, resolve
from tests.integration.engines.file_server import serving
from tests.integration.engines.hub_server import COMMIT, HubServer
from tests.integration.engines.making import making

BIG = b"GGUF" + os.urandom(1_500_000)
FILES = {
    "model-00001-of-00002.safetensors": os.urandom(300_000),
    "model-00002-of-00002.safetensors": os.urandom(200_000),
    "config.json": b"{}",
    "tokenizer.json": b'{"x": 1}',
    "README.md": b"# no",
    "pytorch_model.bin": b"pickle",
    "onnx/model.onnx": b"onnx",
    "x-Q4.gguf": BIG,
    "sub/y.gguf": b"GGUF" + bytes(10),
}


def web(server: HubServer, name: str = "x-Q4.gguf", digest: str = "") -> str:
    return f"{server.address}/store/{name}#sha256={digest or hashlib.sha256(server.files[name]).hexdigest()}"


def parts(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".parts/*")]


async def test_a_file_of_the_web_is_fetched_once_and_found_again(tmp_path: Path) -> None:
    async with serving(HubServer(FILES)) as server:
        source = web(server)
        assert resolve(source, tmp_path) is None
        paths = await asyncio.gather(*(fetch(source, weights_dir=tmp_path) for _ in range(3)))
        asked = len(server.asked)

    assert set(paths) == {resolve(source, tmp_path)} and asked == 1
    assert paths[0].read_bytes() == BIG and paths[0].name == "x-Q4.gguf"
    assert paths[0].stat().st_mode & 0o777 == 0o644 and parts(tmp_path) == []


async def test_a_connection_that_breaks_every_100_kb_only_takes_longer(tmp_path: Path) -> None:
    steps: list[Progress] = []
    async with serving(HubServer(FILES, drop_every=100_000)) as server:
        path = await fetch(web(server), weights_dir=tmp_path, progress=steps.append)
        asked = len(server.asked)

    assert path.read_bytes() == BIG
    assert asked == -(-len(BIG) // 100_000)
    assert steps[-1].step == "ready" and any(step.total_bytes == len(BIG) for step in steps)


async def test_a_server_without_ranges_gives_the_file_from_its_beginning(tmp_path: Path) -> None:
    async with serving(HubServer(FILES, ranges=False)) as server:
        source = web(server)
        place = tmp_path / "https" / source[-64:][:16] / ".parts"
        place.mkdir(parents=True)
        (place / source[-64:]).write_bytes(b"half")

        assert (await fetch(source, weights_dir=tmp_path)).read_bytes() == BIG


@pytest.mark.parametrize("kept", [0, 1, 700_000, len(BIG)])
async def test_what_came_before_is_not_fetched_again(kept: int, tmp_path: Path) -> None:
    async with serving(HubServer(FILES)) as server:
        source = web(server)
        place = tmp_path / "https" / source[-64:][:16] / ".parts"
        place.mkdir(parents=True)
        (place / source[-64:]).write_bytes(BIG[:kept])

        assert (await fetch(source, weights_dir=tmp_path)).read_bytes() == BIG


@pytest.mark.parametrize("damage", ["flipped byte", "other file", "too long"])
async def test_a_wrong_digest_leaves_nothing_and_the_next_call_succeeds(damage: str, tmp_path: Path) -> None:
    wrong = {"flipped byte": b"G" + BIG[1:-1] + bytes([BIG[-1] ^ 1]), "other file": b"<html>", "too long": BIG + b"x"}
    async with serving(HubServer({**FILES, "x-Q4.gguf": wrong[damage]})) as server:
        source = web(server, digest=hashlib.sha256(BIG).hexdigest())
        with pytest.raises(DownloadMismatch):
            await fetch(source, weights_dir=tmp_path)
        assert resolve(source, tmp_path) is None and parts(tmp_path) == []

        server.files = FILES
        assert (await fetch(source, weights_dir=tmp_path)).read_bytes() == BIG


@pytest.mark.parametrize(
    ("path", "kind"), [("/store/none.gguf", NotFoundError), ("/org/model/resolve/x/none.gguf", NotFoundError)]
)
async def test_what_is_not_there_is_said(path: str, kind: type[LlmgwError], tmp_path: Path) -> None:
    async with serving(HubServer(FILES)) as server:
        with pytest.raises(kind):
            await fetch(f"{server.address}{path}#sha256={'a' * 64}", weights_dir=tmp_path)


async def test_a_server_that_is_away_is_given_up_after_a_few_tries(tmp_path: Path) -> None:
    async with serving(HubServer(FILES)) as server:
        source = web(server)

    with pytest.raises(DownloadFailed):
        await fetch(source, weights_dir=tmp_path)


async def test_sigkills_at_ten_random_moments_leave_nothing_or_all(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # shown when the test fails
    dice = random.Random(seed)
    async with serving(HubServer(FILES, drop_every=100_000)) as server:
        source = web(server)
        for _ in range(10):
            async with making("weights", tmp_path, Path("/"), source) as process:
                try:
                    async with asyncio.timeout(dice.uniform(0.3, 1.2)):
                        await process.wait()
                except TimeoutError:
                    process.kill()
            path = resolve(source, tmp_path)
            assert path is None or path.read_bytes() == BIG

        assert (await fetch(source, weights_dir=tmp_path)).read_bytes() == BIG
    assert parts(tmp_path) == []


async def test_a_write_that_fails_is_one_clear_error_and_the_next_call_goes_on(tmp_path: Path) -> None:
    """A limit on file sizes stands for any full disk: it needs no root."""
    async with serving(HubServer(FILES)) as server:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, before[1]))
        try:
            with pytest.raises(StorageError):
                await fetch(web(server), weights_dir=tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

        assert (await fetch(web(server), weights_dir=tmp_path)).read_bytes() == BIG


async def test_a_model_comes_with_all_that_an_engine_reads_and_nothing_else(tmp_path: Path) -> None:
    async with serving(HubServer(FILES)) as server:
        path = await fetch("hf:org/model", weights_dir=tmp_path, origins=Origins(hub=Hub(server.address)))
        asked = len(server.asked)
        again = await fetch("hf:org/model", weights_dir=tmp_path, origins=Origins(hub=Hub("http://127.0.0.1:9")))

    assert path == again == tmp_path / "hf/org--model" / COMMIT == resolve("hf:org/model", tmp_path)
    names = {entry.name for entry in path.iterdir() if not entry.name.startswith(".")}
    assert names == {name for name in FILES if name.endswith((".safetensors", ".json"))}
    assert all((path / name).read_bytes() == FILES[name] for name in names)
    assert asked == 1 + 2 * len(names)


async def test_one_file_of_a_model_is_enough(tmp_path: Path) -> None:
    async with serving(HubServer(FILES, drop_every=100_000)) as server:
        path = await fetch("hf:org/model@v1:sub/y.gguf", weights_dir=tmp_path, origins=Origins(hub=Hub(server.address)))

    assert path == tmp_path / "hf/org--model" / COMMIT / "sub/y.gguf"
    assert resolve("hf:org/model@v1", tmp_path) is None
    assert resolve("hf:org/model:sub/y.gguf", tmp_path) is None  # another revision was never asked for


async def test_a_revision_means_what_it_meant_at_the_first_fetch(tmp_path: Path) -> None:
    async with serving(HubServer(FILES)) as server:
        first = await fetch("hf:org/model:x-Q4.gguf", weights_dir=tmp_path, origins=Origins(hub=Hub(server.address)))
        await fetch("hf:org/model:sub/y.gguf", weights_dir=tmp_path, origins=Origins(hub=Hub(server.address)))
        asked = [path for path in server.asked if path.startswith("/api/")]

    assert first.parent.name == COMMIT
    assert asked[1].startswith(f"/api/models/org/model/revision/{COMMIT}")


async def test_an_interrupted_model_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    lacking = {name: data for name, data in FILES.items() if name != "tokenizer.json"}
    async with serving(HubServer(FILES)) as server:
        whole = server._api()
        server.files = lacking
        server._api = lambda: whole  # type: ignore[method-assign]  # it names a file that it does not give yet
        with pytest.raises(NotFoundError):
            await fetch("hf:org/model", weights_dir=tmp_path, origins=Origins(hub=Hub(server.address)))
        assert resolve("hf:org/model", tmp_path) is None
        server.files, before = FILES, len(server.asked)
        await fetch("hf:org/model", weights_dir=tmp_path, origins=Origins(hub=Hub(server.address)))
        fetched = [path for path in server.asked[before:] if path.startswith("/store/")]

    assert fetched == ["/store/tokenizer.json"]


async def test_a_gated_model_takes_a_token_that_goes_nowhere_else(tmp_path: Path) -> None:
    async with serving(HubServer(FILES, token="hf_secret")) as server:
        with pytest.raises(PermissionError_) as caught:
            await fetch("hf:org/model", weights_dir=tmp_path, origins=Origins(hub=Hub(server.address)))
        assert "HF_TOKEN" in caught.value.hint
        hub = Hub(server.address, "hf_secret")
        path = await fetch("hf:org/model", weights_dir=tmp_path, origins=Origins(hub=hub))

    assert "hf_secret" not in repr(hub)
    assert not any(b"hf_secret" in file.read_bytes() for file in path.parent.rglob("*") if file.is_file())


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", DependencyError), (b"[]", DependencyError), (b'{"sha": "main", "siblings": []}', DependencyError),
        (b'{"sha": "%s", "siblings": []}' % COMMIT.encode(), NotFoundError),
        (b'{"sha": "%s", "siblings": [{"rfilename": "../x.json", "blobId": "%s"}]}' % ((COMMIT.encode(),) * 2),
         NotFoundError),
        (b'{"sha": "%s", "siblings": [{"rfilename": "x.safetensors"}]}' % COMMIT.encode(), DependencyError),
        (b'{"sha": "%s", "siblings": [{"rfilename": "x.safetensors", "lfs": {"sha256": "zz"}}]}' % COMMIT.encode(),
         DependencyError),
        (b'{"sha": "../../x", "siblings": []}', DependencyError),
    ],
)  # fmt: skip
def test_a_hostile_answer_about_a_model_is_refused(body: bytes, kind: type[LlmgwError]) -> None:
    with pytest.raises(kind):
        choose_files(body, HubSource("org", "model"))


def test_the_hub_is_taken_from_the_environment() -> None:
    assert Hub.from_environment({}) == Hub()
    mirror = Hub.from_environment({"HF_ENDPOINT": "https://mirror.example/", "HF_TOKEN": " t \n"})
    assert mirror == replace(Hub(), endpoint="https://mirror.example", token="t")
