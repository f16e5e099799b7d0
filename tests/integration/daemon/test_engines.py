"""The daemon's `/v1/engines`: what is here, what runs on it, and what may go."""

from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from core.api import Progress
from core.client import DaemonClient
from core.errors import ConflictError, NotFoundError
from engines.builds import MANIFEST, Manifest
from tests.integration.daemon.stack import Stack

CONFIG = """
models: [{id: m, runtime: r}]
runtimes:
  r: {engine: llamacpp, build: named, weights: /srv/none.gguf, enabled: false}
"""


def put_build(stack: Stack, name: str) -> None:
    """A build as the installer leaves it."""
    folder = stack.layout.engines / "llamacpp" / name
    folder.mkdir(parents=True)
    (folder / "llama-server").write_text("#!/bin/sh\nexit 1\n")
    (folder / "llama-server").chmod(0o755)
    manifest = Manifest(
        engine="llamacpp", name=name, version="1", executable="llama-server", source="s", sha256=[], size_bytes=5 << 20
    )
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))


async def last_line(client: DaemonClient, engine: str, *, version: str = "", variant: str = "") -> Progress:
    async with aclosing(client.install_engine(engine, version=version, variant=variant)) as lines:
        return [line async for line in lines][-1]


async def test_builds_are_listed_used_and_removed_but_not_under_a_runtime(tmp_path: Path) -> None:
    async with Stack(tmp_path, CONFIG) as stack:
        assert (await stack.client.engines()).builds == []
        for name in ("named", "one", "two", "b10068-pypi-vulkan"):
            put_build(stack, name)

        # A build that is here is only made the one in use: nothing is fetched.
        assert (await last_line(stack.client, "llamacpp", version="b10068")).done == "b10068-pypi-vulkan"
        assert (await last_line(stack.client, "llamacpp", variant="pypi-vulkan")).done == "b10068-pypi-vulkan"
        listed = {build.name: build for build in (await stack.client.engines()).builds}
        assert listed["b10068-pypi-vulkan"].active and listed["named"].used_by == ["r"]
        assert listed["one"].size_bytes == 5 << 20

        assert (await stack.client.prune_engine("llamacpp", apply=False)).builds == ["one", "two"]
        assert (await stack.client.remove_engine("llamacpp", "two")).builds == ["two"]
        with pytest.raises(ConflictError):
            await stack.client.remove_engine("llamacpp", "named")
        assert (await stack.client.prune_engine("llamacpp", apply=True)).builds == ["one"]
        assert sorted(build.name for build in (await stack.client.engines()).builds) == [
            "b10068-pypi-vulkan",
            "named",
        ]


async def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    async with Stack(tmp_path, CONFIG) as stack:
        for engine in ("nosuch", "..", "sim"):
            with pytest.raises(NotFoundError):
                await stack.client.prune_engine(engine, apply=True)
            with pytest.raises(NotFoundError):
                await last_line(stack.client, engine)
        with pytest.raises(NotFoundError):
            await stack.client.roll_back_engine("llamacpp")
        with pytest.raises(NotFoundError, match="no digest of llamacpp 'b9' is known"):
            await last_line(stack.client, "llamacpp", version="b9")
        with pytest.raises(NotFoundError, match="no variant 'cu13' of llamacpp b10068"):
            await last_line(stack.client, "llamacpp", version="b10068", variant="cu13")


async def test_a_version_that_only_an_operators_digest_makes_known_is_taken_up(tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    digests = f"{{ComfyUI-0.40.0.tar.gz: {'ab' * 32}}}"
    config = f"{CONFIG}offline: {{mirror: {tmp_path / 'mirror'}}}\nengines: {{comfyui: {{digests: {digests}}}}}\n"
    async with Stack(tmp_path, config) as stack:
        last = await last_line(stack.client, "comfyui", version="0.40.0")
        with pytest.raises(NotFoundError, match=r"no digest of comfyui '0\.50\.0' is known"):
            await last_line(stack.client, "comfyui", version="0.50.0")

    assert last.error is not None and last.error.code in ("archive_missing", "engine_no_build_fits")
