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


async def last_line(client: DaemonClient, engine: str, build: str) -> Progress:
    async with aclosing(client.install_engine(engine, build)) as lines:
        return [line async for line in lines][-1]


async def test_builds_are_listed_used_and_removed_but_not_under_a_runtime(tmp_path: Path) -> None:
    async with Stack(tmp_path, CONFIG) as stack:
        assert (await stack.client.engines()).builds == []
        for name in ("named", "one", "two", "pypi-vulkan-0.10068.0"):
            put_build(stack, name)

        # A build that is here is only made the one in use: nothing is fetched.
        assert (await last_line(stack.client, "llamacpp", "pypi-vulkan-0.10068.0")).done == "pypi-vulkan-0.10068.0"
        listed = {build.name: build for build in (await stack.client.engines()).builds}
        assert listed["pypi-vulkan-0.10068.0"].active and listed["named"].used_by == ["r"]
        assert listed["one"].size_bytes == 5 << 20

        assert (await stack.client.prune_engine("llamacpp", apply=False)).builds == ["one", "two"]
        assert (await stack.client.remove_engine("llamacpp", "two")).builds == ["two"]
        with pytest.raises(ConflictError):
            await stack.client.remove_engine("llamacpp", "named")
        assert (await stack.client.prune_engine("llamacpp", apply=True)).builds == ["one"]
        assert sorted(build.name for build in (await stack.client.engines()).builds) == [
            "named",
            "pypi-vulkan-0.10068.0",
        ]


async def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    async with Stack(tmp_path, CONFIG) as stack:
        for engine in ("nosuch", "..", "sim"):
            with pytest.raises(NotFoundError):
                await stack.client.prune_engine(engine, apply=True)
            with pytest.raises(NotFoundError):
                await last_line(stack.client, engine, "")
        with pytest.raises(NotFoundError):
            await stack.client.roll_back_engine("llamacpp")
        failed = await last_line(stack.client, "llamacpp", "no-such-build")
        assert failed.error is not None and failed.error.code == "engine_no_build_fits"
