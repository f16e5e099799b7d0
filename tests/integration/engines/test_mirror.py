"""One tree of files in the place of everything that builds and weights come from, with no network beside it.

Each test runs with the directory itself and with a web server before it.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.app import main
from core.config.schema import Config, Engines, Offline, OwnProgram, OwnPython, OwnTree
from core.errors import ConfigError, LlmgwError, NotFoundError
from engines.builds import find_build
from engines.digests import give_digests
from engines.download import DownloadFailed, DownloadMismatch
from engines.install import install_build
from engines.judge import judge_runtimes
from engines.mirror import ENGINES, Mirror, describe_mirrors, find_mirror, packages_for
from engines.origins import find_origins
from engines.packages import Packages
from engines.pypi import WheelMismatch, WheelMissing
from engines.recipe import Recipe
from engines.weights import fetch
from tests.integration.engines import test_environments as environments
from tests.integration.engines import test_releases as releases
from tests.integration.engines.file_server import serving
from tests.integration.engines.mirror_server import MirrorServer
from tests.integration.engines.wheels import make_engine, make_recipe

WAYS = pytest.mark.parametrize("way", ["directory", "server"])
NOWHERE = "http://127.0.0.1:9"
COMMIT = "c0ffee" + "0" * 34
GGUF = b"GGUF" + os.urandom(300_000)
SAFE = os.urandom(200_000)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A proxy that is dead, and an index of pip's that nobody answers at."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, NOWHERE)
    for name in ("no_proxy", "NO_PROXY", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {NOWHERE}/simple\nextra-index-url = {NOWHERE}/more\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))


@contextlib.asynccontextmanager
async def offline(tree: Path, way: str, *, drop_every: int = 0, garbage: bytes = b"") -> AsyncIterator[Config]:
    """A config that names the tree."""
    if way == "directory":
        yield Config(offline=Offline(mirror=f"{tree}/"))
        return
    async with serving(MirrorServer(tree, drop_every=drop_every, garbage=garbage)) as server:
        yield Config(offline=Offline(mirror=f"{server.address}/"))


async def install(state: Path, recipe: Recipe, config: Config, digests: dict[str, str] | None = None) -> str:
    """What stands where the build is."""
    completed = give_digests(recipe, digests or {}, find_mirror("fake", config))
    packages = packages_for("fake", config)
    build = await install_build("fake", engines_dir=state, packages=packages, recipe=completed)
    return build.executable.read_text(errors="replace") if build.executable.stat().st_size < 1000 else "large"


def archives(tree: Path, files: dict[str, bytes]) -> None:
    (tree / "archives").mkdir(parents=True)
    for name, data in files.items():
        (tree / "archives" / name).write_bytes(data)


@WAYS
async def test_a_wheel_is_found_in_the_mirror(way: str, tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "mirror/pypi")

    async with offline(tmp_path / "mirror", way) as config:
        assert "version: 1" in await install(tmp_path / "state", make_recipe(wheel.sha256), config)


@WAYS
async def test_an_environment_is_made_of_the_mirrors_wheels(way: str, tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    sha256 = environments.an_index(tmp_path / "mirror/pypi")

    async with offline(tmp_path / "mirror", way) as config:
        await install(tmp_path / "state", environments.a_recipe(sha256), config)

    build = find_build("fake", "", tmp_path / "state")
    assert build is not None and build.name == "1.0-env"


@pytest.mark.parametrize(("way", "drop_every"), [("directory", 0), ("server", 0), ("server", 100_000)])
async def test_archives_of_a_release_are_found_in_the_mirror(way: str, drop_every: int, tmp_path: Path) -> None:
    archives(tmp_path / "mirror", releases.GOOD)
    digests = releases.digests_of(releases.GOOD)

    async with offline(tmp_path / "mirror", way, drop_every=drop_every) as config:
        assert "version: 1" in await install(tmp_path / "state", releases.a_recipe("/x", {}), config, digests)

    assert sorted(os.listdir(tmp_path / "mirror/archives")) == sorted(releases.GOOD)


def put_weights(tree: Path) -> tuple[str, str, str]:
    """A file of the web, a whole model and one file of it; their sources."""
    digest = hashlib.sha256(GGUF).hexdigest()
    place = tree / "https" / digest[:16]
    place.mkdir(parents=True)
    (place / "x.gguf").write_bytes(GGUF)
    files = {"model.safetensors": SAFE, "config.json": b"{}", "sub/y.gguf": GGUF}
    siblings = [
        {"rfilename": name, "size": len(data), "lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}}
        for name, data in files.items()
    ]
    for revision in ("main", COMMIT):
        answer = tree / "hub/api/models/org/model/revision" / revision
        answer.parent.mkdir(parents=True, exist_ok=True)
        answer.write_text(json.dumps({"sha": COMMIT, "siblings": siblings}))
    for name, data in files.items():
        path = tree / "hub/org/model/resolve" / COMMIT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return f"https://far.example.org/a/x.gguf#sha256={digest}", "hf:org/model", "hf:org/model:sub/y.gguf"


@pytest.mark.parametrize(("way", "drop_every"), [("directory", 0), ("server", 0), ("server", 100_000)])
async def test_weights_come_from_the_mirror(way: str, drop_every: int, tmp_path: Path) -> None:
    web, model, file = put_weights(tmp_path / "mirror")

    async with offline(tmp_path / "mirror", way, drop_every=drop_every) as config:
        origins = find_origins(config, {"HF_TOKEN": "hf_secret"})
        assert (await fetch(web, weights_dir=tmp_path / "w", origins=origins)).read_bytes() == GGUF
        assert (await fetch(file, weights_dir=tmp_path / "w", origins=origins)).read_bytes() == GGUF
        whole = await fetch(model, weights_dir=tmp_path / "w", origins=origins)

    assert (whole / "model.safetensors").read_bytes() == SAFE and (whole / "config.json").read_bytes() == b"{}"
    assert origins.hub.token == ""
    assert "https://far.example.org/a/x.gguf" in (tmp_path / "w/https" / web[-64:][:16] / ".fetched.json").read_text()


@WAYS
@pytest.mark.parametrize("which", [0, 1, 2], ids=["web", "model", "file"])
async def test_a_flipped_byte_in_weights_is_never_taken(which: int, way: str, tmp_path: Path) -> None:
    source = put_weights(tmp_path / "mirror")[which]
    for path in (tmp_path / "mirror").rglob("*"):
        if path.is_file() and path.stat().st_size > 1000:
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)

    async with offline(tmp_path / "mirror", way) as config:
        with pytest.raises(DownloadMismatch):
            await fetch(source, weights_dir=tmp_path / "w", origins=find_origins(config, {}))

    assert not [path for path in (tmp_path / "w").rglob("*") if path.suffix in (".gguf", ".safetensors")]


@WAYS
@pytest.mark.parametrize("which", [0, 1, 2], ids=["web", "model", "file"])
async def test_weights_that_the_mirror_lacks_are_not_looked_for_elsewhere(which: int, way: str, tmp_path: Path) -> None:
    source = put_weights(tmp_path / "elsewhere")[which]
    (tmp_path / "mirror").mkdir()

    async with offline(tmp_path / "mirror", way) as config:
        with pytest.raises(NotFoundError) as caught:
            await fetch(source, weights_dir=tmp_path / "w", origins=find_origins(config, {}))

    assert config.offline.mirror.rstrip("/") in caught.value.message and caught.value.code == "weights_missing"


@WAYS
async def test_what_the_mirror_lacks_is_named_with_the_place(way: str, tmp_path: Path) -> None:
    make_engine(tmp_path / "mirror/pypi").path.unlink()
    archives(tmp_path / "mirror", {releases.MAIN: releases.GOOD[releases.MAIN]})
    digests = releases.digests_of(releases.GOOD)

    async with offline(tmp_path / "mirror", way) as config:
        with pytest.raises(WheelMissing) as caught:
            await install(tmp_path / "state", make_recipe("0" * 64), config)
        with pytest.raises(NotFoundError) as lacks:
            await install(tmp_path / "state", releases.a_recipe("/x", {}), config, digests)

    place = config.offline.mirror.rstrip("/")
    assert f"{place}/pypi" in caught.value.message and "fake-engine 1.0" in caught.value.message
    assert "offline.mirror" in caught.value.hint
    assert f"{place}/archives/{releases.LIBRARIES}" in lacks.value.message and lacks.value.code == "archive_missing"
    assert find_build("fake", "", tmp_path / "state") is None


@WAYS
async def test_a_mirror_without_wheels_turns_down_only_what_is_made_of_them(way: str, tmp_path: Path) -> None:
    archives(tmp_path / "mirror", releases.GOOD)
    both = Recipe(engine="fake", builds=make_recipe("0" * 64).builds + releases.a_recipe("/x", {}).builds)

    async with offline(tmp_path / "mirror", way) as config:
        await install(tmp_path / "state", both, config, releases.digests_of(releases.GOOD))

    build = find_build("fake", "", tmp_path / "state")
    assert build is not None and build.name == "1-release"


async def test_a_directory_that_is_not_there_is_an_error_of_the_setting(tmp_path: Path) -> None:
    config = Config(offline=Offline(mirror=str(tmp_path / "nowhere")))

    with pytest.raises(ConfigError, match="nowhere") as caught:
        await install(tmp_path / "state", make_recipe("0" * 64), config)

    assert caught.value.code == "mirror_missing" and "offline.mirror" in caught.value.hint


@WAYS
async def test_a_flipped_byte_makes_no_build(way: str, tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "mirror/pypi", ballast_bytes=10_000)
    digests = releases.digests_of(releases.GOOD)
    archives(tmp_path / "mirror", {**releases.GOOD, releases.MAIN: releases.GOOD[releases.MAIN][:-1] + b"?"})
    data = bytearray(wheel.path.read_bytes())
    data[5000] ^= 1
    wheel.path.write_bytes(data)

    async with offline(tmp_path / "mirror", way) as config:
        with pytest.raises(WheelMismatch) as caught:
            await install(tmp_path / "state", make_recipe(wheel.sha256), config)
        with pytest.raises(DownloadMismatch):
            await install(tmp_path / "state", releases.a_recipe("/x", {}), config, digests)

    assert "offline.mirror" in caught.value.hint
    assert find_build("fake", "", tmp_path / "state") is None


@pytest.mark.parametrize("garbage", [b"\0\xff garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"])
async def test_a_server_that_speaks_nonsense_is_one_clear_error(garbage: bytes, tmp_path: Path) -> None:
    web, model, _ = put_weights(tmp_path / "mirror")
    wheel = make_engine(tmp_path / "mirror/pypi")
    digests = releases.digests_of(releases.GOOD)

    async with offline(tmp_path / "mirror", "server", garbage=garbage) as config:
        with pytest.raises(WheelMissing):
            await install(tmp_path / "state", make_recipe(wheel.sha256), config)
        with pytest.raises((DownloadMismatch, DownloadFailed)):
            await install(tmp_path / "state", releases.a_recipe("/x", {}), config, digests)
        for source in (web, model):
            with pytest.raises(LlmgwError):
                await fetch(source, weights_dir=tmp_path / "w", origins=find_origins(config, {}))

    assert find_build("fake", "", tmp_path / "state") is None
    assert not list((tmp_path / "w").rglob("*.gguf")) + list((tmp_path / "w").rglob("*.safetensors"))


async def test_a_wheel_that_breaks_off_comes_wholly_with_the_next_call(tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "mirror/pypi", ballast_bytes=500_000)

    async with offline(tmp_path / "mirror", "server", drop_every=100_000) as config:
        with contextlib.suppress(LlmgwError):  # a newer pip goes on by itself where it was
            await install(tmp_path / "state", make_recipe(wheel.sha256), config)
    build = find_build("fake", "", tmp_path / "state")
    assert build is None or (build.executable.parent / "ballast.so").stat().st_size == 500_000

    async with offline(tmp_path / "mirror", "server") as config:
        assert "version: 1" in await install(tmp_path / "state", make_recipe(wheel.sha256), config)


def of(engines: Engines | None = None, mirror: str = "") -> Config:
    return Config(engines=engines or Engines(), offline=Offline(mirror=mirror))


ALL = "/srv/all"
OWN = Engines(mirror="https://pypi.example.org/simple", vllm=OwnPython(mirror="https://v.example.org/m/"))


@pytest.mark.parametrize(
    ("config", "engine", "tree", "packages"),
    [
        (of(), "vllm", None, Packages()),
        (of(mirror=ALL), "vllm", ALL, Packages(Path("/srv/all/pypi"))),
        (of(mirror=ALL), "", ALL, Packages(Path("/srv/all/pypi"))),
        (of(mirror="file:///srv/all"), "comfyui", ALL, Packages(Path("/srv/all/pypi"))),
        (of(OWN, ALL), "llamacpp", ALL, Packages(index="https://pypi.example.org/simple")),
        (of(OWN, ALL), "vllm", "https://v.example.org/m", Packages(page="https://v.example.org/m/pypi/")),
        (of(OWN), "sglang", None, Packages(index="https://pypi.example.org/simple")),
        (of(OWN), "", None, Packages(index="https://pypi.example.org/simple")),
    ],
)
def test_an_engines_own_mirror_goes_before_the_index_and_that_before_the_one_for_all(
    config: Config, engine: str, tree: str | None, packages: Packages
) -> None:
    mirror, found = find_mirror(engine, config), packages_for(engine, config)

    assert (mirror.place if mirror else None) == tree
    assert (found.folder, found.page, found.index) == (packages.folder, packages.page, packages.index)


def test_what_is_used_is_told_in_words_without_a_password() -> None:
    engines = Engines(mirror="https://me:secret@pypi.example.org/simple")

    told = describe_mirrors("vllm", of(engines, ALL))

    assert told == ["https://…@pypi.example.org/simple (engines.mirror) for packages", "/srv/all (offline.mirror)"]
    assert describe_mirrors("vllm", of()) == []


def test_hugging_faces_own_setting_goes_before_the_mirror() -> None:
    environ = {"HF_ENDPOINT": "https://hub.example.org", "HF_TOKEN": "t"}

    assert find_origins(of(mirror=ALL), environ).hub.endpoint == "https://hub.example.org"
    assert find_origins(of(mirror=ALL), {"HF_TOKEN": "t"}).hub.endpoint == "/srv/all/hub"
    assert find_origins(of(), {"HF_TOKEN": "t"}).hub.token == "t"


BAD = [
    "http://example.org/m",
    "https://me:secret@example.org/m",
    "example.org/m",
    "m",
    "https://x.org/m?a=1",
    "ftp://x/m",
]


@pytest.mark.parametrize("place", BAD)
def test_what_can_be_no_mirror_is_named_by_its_setting(place: str) -> None:
    own = Engines(
        llamacpp=OwnProgram(mirror=place), vllm=OwnPython(mirror=place), sglang=OwnPython(mirror=place),
        trtllm=OwnPython(mirror=place), comfyui=OwnTree(mirror=place),
    )  # fmt: skip
    found = judge_runtimes(of(own, place))

    assert [problem.path for problem in found] == [f"engines.{name}.mirror" for name in ENGINES] + ["offline.mirror"]
    assert "secret" not in str(found)


def test_an_index_that_can_be_none_is_named_too() -> None:
    (problem,) = judge_runtimes(of(Engines(mirror="http://me:secret@pypi.example.org/simple")))

    assert problem.path == "engines.mirror" and "secret" not in str(problem)


def test_the_plan_says_where_builds_would_come_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_text("offline: {mirror: /srv/all}\nengines: {vllm: {mirror: /srv/v}}\n")

    for engine, told in (("llamacpp", "/srv/all (offline.mirror)"), ("vllm", "/srv/v (engines.vllm.mirror)")):
        main(["engine", "plan", engine, "--state", str(tmp_path)])
        assert f"  from {told}\n" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["/srv/m", "file:///srv/m/", "https://x.org/m", "http://127.0.0.1:8080/m", ""])
def test_a_directory_and_an_address_of_a_folder_are_mirrors(place: str) -> None:
    assert judge_runtimes(of(mirror=place)) == []
    assert not place or Mirror("/srv/m", "x").address("a") == "/srv/m/a"
