"""Who may ask, what the gateway is told, and jobs that outlive their callers."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path

import pytest

from core.api import Progress
from core.config.load import parse_config
from core.errors import DependencyError
from core.runtime import RuntimeState
from daemon.hardware.memory import parse_meminfo
from daemon.jobs import Jobs, Report
from daemon.local_api.access import Caller, CallerRefused, Role, require, role_of
from daemon.routes import RuntimeView, build_route_table
from engines.registry import get_adapter


@pytest.mark.parametrize(
    ("uid", "groups", "expected"),
    [
        (0, {0}, Role.ADMIN),
        (500, {500}, Role.ADMIN),  # the daemon's own user
        (1000, {1000, 27}, Role.NONE),
        (1000, {1000, 990}, Role.ADMIN),
        (991, {991}, Role.GATEWAY),
        (65534, {65534}, Role.NONE),
    ],
)
def test_roles(uid: int, groups: set[int], expected: Role) -> None:
    caller = Caller(1, uid, uid)
    assert role_of(caller, own_uid=500, gateway_uid=991, admin_gid=990, groups=groups) is expected


def test_without_the_packages_users_only_root_and_ourselves_may_ask() -> None:
    caller = Caller(1, 991, 991)
    assert role_of(caller, own_uid=500, gateway_uid=None, admin_gid=None, groups={991}) is Role.NONE


def test_a_refusal_names_the_way_in() -> None:
    with pytest.raises(CallerRefused) as caught:
        require(Role.GATEWAY, Role.ADMIN, Caller(1, 1000, 1000))
    assert "llmgw-admin" in caught.value.hint


CONFIG = parse_config(
    b"""
security: {apiKeys: [sk-1], adminApiKeys: [sk-2]}
models: [{id: a, runtime: r}, {id: b, runtime: s, advertise: false}]
aliases: {default: a}
runtimes: {r: {engine: sim, maxConcurrency: 3}, s: {engine: sim, enabled: false}}
""",
    Path("c"),
    {},
).config


def test_the_route_table_says_where_and_whether_and_holds_no_key() -> None:
    view = RuntimeView(RuntimeState.RUNNING, "", 8201, "/run/llmgw/keys/r.key", get_adapter("sim"))
    down = RuntimeView(RuntimeState.FAILED, "exited with status 1", 0, "", get_adapter("sim"))
    table = build_route_table(CONFIG, {"r": view, "s": down}, node="n", epoch="e", version=3)
    first, second = table.models
    assert (first.targets[0].ready, first.targets[0].port, first.aliases) == (True, 8201, ["default"])
    assert (second.targets[0].ready, second.targets[0].reason, second.advertise) == (
        False,
        "exited with status 1",
        False,
    )
    assert "/v1/chat/completions" in first.targets[0].routes
    assert {key.scope for key in table.keys} == {"inference", "admin"}
    assert "sk-1" not in repr(table)


def test_the_route_table_says_how_requests_queue_and_whether_the_node_serves() -> None:
    view = RuntimeView(RuntimeState.RUNNING, "", 8201, "", get_adapter("sim"))
    text = (
        b"models: [{id: a, runtime: r}, {id: b, runtime: s}]\n"
        b"runtimes: {s: {engine: sim}, r: {engine: sim, maxConcurrency: 3, maxQueuedRequests: 0, queueTimeoutMs: 7, "
        b"queueRetryAfterSeconds: 4, interactiveReservedSlots: 2, requestStartupWaitMs: 9}}"
    )
    config = parse_config(text, Path("c"), {}).config
    table = build_route_table(config, {"r": view, "s": view}, node="n", epoch="e", version=1, serving=False)
    queues = [
        (t.max_concurrency, t.max_queued_requests, t.queue_timeout_ms, t.queue_retry_after_seconds,
         t.interactive_reserved_slots, t.request_startup_wait_ms)
        for t in (model.targets[0] for model in table.models)
    ]  # fmt: skip
    assert (queues, table.serving) == ([(3, 0, 7, 4, 2, 9), (1, None, 240_000, 2, 0, 1000)], False)


async def test_a_job_goes_on_when_its_first_watcher_leaves_and_is_joined_by_the_second() -> None:
    go = asyncio.Event()
    runs = 0

    async def work(report: Report) -> str:
        nonlocal runs
        runs += 1
        report(Progress(step="download"))
        await go.wait()
        return "made"

    async with asyncio.TaskGroup() as group:
        jobs = Jobs(group.create_task)
        first = jobs.run("x", work).watch()
        assert (await anext(first)).step == "download"
        await first.aclose()  # type: ignore[attr-defined]
        second = jobs.run("x", work)
        go.set()
        lines = [line async for line in second.watch()]
    assert [line.step for line in lines] == ["download", "done"]
    assert (lines[-1].done, runs) == ("made", 1)


@pytest.mark.parametrize(
    ("error", "code"), [(DependencyError("no network", code="offline"), "offline"), (ValueError("x"), "internal_error")]
)
async def test_a_job_that_fails_tells_its_watchers(error: Exception, code: str) -> None:
    async def work(report: Report) -> str:
        raise error

    async with asyncio.TaskGroup() as group:
        spawned: list[asyncio.Task[None]] = []

        def spawn(job: Coroutine[None, None, None]) -> None:
            spawned.append(group.create_task(job))

        lines = [line async for line in Jobs(spawn).run("x", work).watch()]
    assert lines[-1].error is not None
    assert lines[-1].error.code == code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MemTotal:       16384 kB\nMemAvailable:    2048 kB\n", (16, 2)),
        ("MemTotal: x kB\n", (None, None)),
        ("", (None, None)),
        ("MemTotal:\nMemAvailable: 1024 kB", (None, 1)),
    ],
)
def test_meminfo(text: str, expected: tuple[int | None, int | None]) -> None:
    memory = parse_meminfo(text)
    assert (memory.total_mib, memory.available_mib) == expected
