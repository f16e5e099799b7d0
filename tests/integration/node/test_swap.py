"""Two models that do not fit together, both wanted all the time: no thrash, no lost request."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from daemon.hardware.memory import read_memory
from tests.integration.daemon.stack import free_port, port_range
from tests.integration.node.up import Up

RESIDENCY_S = 4.0
DURATION_S = 30.0
LONGEST_S = 90.0
"""A busy machine may take longer for the same."""
MANY = 10
BODY = '{"model":"%s","messages":[{"role":"user","content":"hi"}],"max_tokens":2}'


def config(port: int) -> str:
    """40 % of the machine each in a budget of 70 %."""
    memory = read_memory()
    assert memory is not None and memory.total_mib is not None
    total_gib = memory.total_mib / 1024
    low, high = port_range()
    policy = f"memoryBudgetGb: {total_gib * 0.7:.2f}, minResidencyMs: {int(RESIDENCY_S * 1000)}"
    size = f"{total_gib * 0.4:.2f}"
    return (
        f"server: {{port: {port}, workers: 2}}\nports: {{backends: [{low}, {high}]}}\nruntimePolicy: {{{policy}}}\n"
        "models: [{id: a, runtime: a}, {id: b, runtime: b}]\n"
        f"runtimes:\n  a: {{engine: sim, memoryGb: {size}, keepWarm: false}}\n"
        f"  b: {{engine: sim, memoryGb: {size}, keepWarm: false}}\n"
    )


def count_starts(up: Up) -> int:
    return (up.state / "log" / "daemon.log").read_text().count("runtime_start ")


async def ask_for(up: Up, model: str, is_enough: Callable[[], bool], served: list[int]) -> None:
    """A patient client, as SDKs are: what says Retry-After is asked again, anything else must be an answer."""
    headers = {"Content-Type": "application/json"}
    while not is_enough():
        reply = await up.http.fetch(
            "POST", "/v1/chat/completions", headers=headers, body=(BODY % model).encode(), timeout_s=60
        )
        if reply.status == 200:
            served.append(1)
        else:
            assert reply.status in (429, 503) and "Retry-After" in reply.headers, (reply.status, reply.body)
            await asyncio.sleep(0.3)


async def test_two_models_that_do_not_fit_together_share_the_node(tmp_path: Path) -> None:
    async with Up(tmp_path, config(free_port())) as up:
        await up.until_gateway(60.0)
        served: dict[str, list[int]] = {"a": [], "b": []}
        began_s = time.monotonic()

        def is_enough() -> bool:
            took_s = time.monotonic() - began_s
            had_turns = count_starts(up) >= 3 and all(len(answers) >= MANY for answers in served.values())
            return took_s > LONGEST_S or (took_s > DURATION_S and had_turns)

        await asyncio.gather(*(ask_for(up, model, is_enough, served[model]) for model in served))
        starts, took_s = count_starts(up), time.monotonic() - began_s
    assert all(len(answers) >= MANY for answers in served.values()), served
    assert 3 <= starts <= took_s / RESIDENCY_S + 3, f"{starts} starts"
