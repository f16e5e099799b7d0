"""A config that is written in place, slowly, or that a power failure emptied: what runs goes on running."""

import asyncio
from pathlib import Path

import pytest

from core.api import NodeState
from core.errors import ConfigError
from tests.integration.daemon.stack import Stack, running
from tests.rewriting import rewrite

SIM = "runtimes:\n  sim: {engine: sim, keepWarm: true}\n"
MORE = "  other: {engine: sim, enabled: false}\n"
TEMPTING_S = 1.0
"""Longer than a file must be still to be read. Nothing fails for its being too short."""


def knows_other(state: NodeState) -> bool:
    return any(runtime.id == "other" for runtime in state.runtimes)


async def lived_through(stack: Stack, pid: int) -> None:
    assert (await stack.until_runtime("sim", "running")).pid == pid
    assert "runtime_stop" not in stack.log_text()


@pytest.mark.parametrize("is_new", [False, True])
async def test_half_of_it_is_not_read(is_new: bool, tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        pid = (await stack.until_runtime("sim", "running")).pid
        text = stack.layout.config.read_text()
        if is_new:
            stack.layout.config.unlink()
            await stack.until(lambda state: "does not exist" in state.config.error)
        with open(stack.layout.config, "w") as file:
            file.write(text.removesuffix(SIM))  # a config of its own, which wants no runtimes
            file.flush()
            rewrite(stack.layout.environment, "X=1\n")
            await asyncio.sleep(TEMPTING_S)
            file.write(SIM + MORE)
        await stack.until(knows_other)
        await lived_through(stack, pid)


@pytest.mark.parametrize("text", ["", "\n# nothing yet\n---\n"])
async def test_an_empty_one_is_refused_until_it_says_something(text: str, tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        pid = (await stack.until_runtime("sim", "running")).pid
        full = stack.layout.config.read_text()
        stack.layout.config.write_text(text)
        await stack.until(lambda state: "is empty" in state.config.error)
        with pytest.raises(ConfigError, match=r"is empty.*write \{\}"):
            await stack.client.reload()

        stack.kill(stack.daemon)
        stack.start_daemon()
        await stack.until(lambda state: "is empty" in state.config.error)
        await lived_through(stack, pid)

        with open(stack.layout.config, "a") as file:
            file.write(full + MORE)
        state = await stack.until(knows_other)
        assert not state.config.error
        await lived_through(stack, pid)


async def test_one_that_says_that_it_wants_nothing_gets_it(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        await stack.until_runtime("sim", "running")
        rewrite(stack.layout.config, "{}\n")
        await stack.until(lambda state: not state.runtimes)
        assert stack.engine_pids() == []


async def test_an_empty_one_is_a_beginning_where_nothing_was(tmp_path: Path) -> None:
    async with Stack(tmp_path, "") as stack:
        stack.kill(stack.daemon)
        stack.layout.last_good_config.unlink()
        rewrite(stack.layout.config, "# to come\n")
        stack.start_daemon()
        state = await stack.until(lambda state: True)
        assert not state.config.error
