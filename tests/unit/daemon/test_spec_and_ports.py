"""Spec hash, deadlines, ports and intents."""

from pathlib import Path

import pytest

from core.config.load import parse_config
from core.config.schema import Config
from daemon.intents import Intents, wanted_of
from daemon.runtimes.ports import NoPortFree, PortTaken, choose_port
from daemon.runtimes.spec import served_models, spec_hash, start_deadline_s
from units.model import UnitRecord

BASE = """
models: [{id: a, runtime: r}, {id: b, runtime: r, upstreamModel: big}]
runtimes:
  r: {engine: sim, RUNTIME}
"""


def config(runtime: str = "args: [x]", text: str = BASE) -> Config:
    return parse_config(text.replace("RUNTIME", runtime).encode(), Path("c"), {}).config


def test_the_engine_learns_every_name_of_its_models() -> None:
    assert served_models(config(), "r") == ("a", "big")


def test_a_runtime_without_models_serves_under_its_own_id() -> None:
    assert served_models(config(text="runtimes: {r: {engine: sim}}"), "r") == ("r",)


@pytest.mark.parametrize(
    ("change", "restarts"),
    [
        ("args: [x], keepWarm: true", False),
        ("args: [x], startupTimeoutMs: 5", False),
        ("args: [x], healthUrl: 'http://x'", False),
        ("args: [x], maxQueuedRequests: 3, queueTimeoutMs: 0, queueRetryAfterSeconds: 9", False),
        ("args: [x], interactiveReservedSlots: 0, requestStartupWaitMs: 5", False),
        ("args: [y]", True),
        ("args: [x], env: {OMP_NUM_THREADS: '1'}", True),
        ("args: [x], contextLength: 100", True),
        ("args: [x], maxConcurrency: 2", True),
        ("args: [x], weights: /w", True),
        ("args: [x], port: 9000", True),
        ("args: [x], memoryGb: 2", True),
        ("args: [x], options: {a: 1}", True),
    ],
)
def test_only_what_the_engine_sees_restarts_it(change: str, restarts: bool) -> None:
    assert (spec_hash(config(), "r") != spec_hash(config(change), "r")) is restarts


@pytest.mark.parametrize(("engine", "restarts"), [("command, command: [x]", False), ("sim", True), ("llamacpp", True)])
def test_more_slots_restart_only_an_engine_that_is_told_of_them(engine: str, restarts: bool) -> None:
    before, after = (
        config(text=f"runtimes: {{r: {{engine: {engine}, maxConcurrency: {slots}, priority: 1}}}}") for slots in (1, 2)
    )
    assert (spec_hash(before, "r") != spec_hash(after, "r")) is restarts


def test_a_new_model_name_restarts_the_engine_that_must_know_it() -> None:
    assert spec_hash(config(), "r") != spec_hash(config(text=BASE.replace("id: b", "id: c").replace("big", "c")), "r")


@pytest.mark.parametrize(("gib", "expected"), [(0, 300), (1, 320), (100, 2300)])
def test_the_deadline_grows_with_the_weights(gib: int, expected: float) -> None:
    assert start_deadline_s(config().runtimes["r"], gib << 30) == expected


def test_a_configured_deadline_wins() -> None:
    assert start_deadline_s(config("startupTimeoutMs: 1500").runtimes["r"], 1 << 40) == 1.5


@pytest.mark.parametrize(
    ("fixed", "previous", "taken", "busy", "expected"),
    [
        (None, None, set(), set(), 10),
        (None, None, {10, 11}, set(), 12),
        (None, None, {10}, {11}, 12),
        (None, 12, {10}, set(), 12),
        (None, 12, {12}, set(), 10),
        (None, 12, set(), {12}, 10),
        (None, 99, set(), set(), 10),
        (77, None, {77}, set(), 77),
        (77, 10, set(), set(), 77),
    ],
)
def test_ports(fixed: int | None, previous: int | None, taken: set[int], busy: set[int], expected: int) -> None:
    got = choose_port(fixed=fixed, previous=previous, span=(10, 12), taken=taken, is_free=lambda p: p not in busy)
    assert got == expected


def test_a_full_range_and_a_taken_port_are_refused_with_a_remedy() -> None:
    with pytest.raises(NoPortFree, match="10-12"):
        choose_port(fixed=None, previous=None, span=(10, 12), taken={10, 11, 12}, is_free=lambda _: True)
    with pytest.raises(PortTaken, match="port 77 is in use"):
        choose_port(fixed=77, previous=None, span=(10, 12), taken=set(), is_free=lambda _: False)


def test_fifty_runtimes_in_one_pass_never_share_a_port() -> None:
    taken: set[int] = set()
    for _ in range(50):
        taken.add(choose_port(fixed=None, previous=None, span=(8201, 8299), taken=taken, is_free=lambda _: True))
    assert len(taken) == 50


def wanted(runtime: str, intents: Intents) -> tuple[bool, bool]:
    want = wanted_of(config(runtime), intents)["r"]
    return want.run, want.hold


@pytest.mark.parametrize(
    ("runtime", "events", "expected"),
    [
        ("keepWarm: true", [], (True, False)),
        ("keepWarm: false", [], (False, False)),
        ("keepWarm: false", ["request"], (True, False)),
        ("keepWarm: true", ["hold"], (False, True)),
        ("keepWarm: false", ["request", "hold"], (False, True)),
        ("keepWarm: true", ["hold", "request"], (True, False)),
        ("keepWarm: true, enabled: false", ["request"], (False, False)),
        ("keepWarm: true", ["stop-all"], (False, False)),
        ("keepWarm: true", ["stop-all", "hold"], (False, True)),
        ("keepWarm: true", ["hold", "stop-all"], (False, True)),
        ("keepWarm: true", ["stop-all", "serve"], (True, False)),
        ("keepWarm: false", ["request", "evict"], (False, False)),
        ("keepWarm: false", ["request", "evict", "settle"], (False, False)),
        ("keepWarm: false", ["request", "evict", "request"], (False, False)),
        ("keepWarm: false", ["request", "evict", "request", "settle"], (True, False)),
        ("keepWarm: false", ["request", "evict", "request", "evict", "settle"], (True, False)),
    ],
)
def test_what_is_wanted(runtime: str, events: list[str], expected: tuple[bool, bool]) -> None:
    intents = Intents()
    happen = {
        "request": lambda: intents.request("r", "x"),
        "hold": lambda: intents.hold("r"),
        "stop-all": lambda: intents.serve(False),
        "serve": lambda: intents.serve(True),
        "evict": lambda: intents.evict("r", "x"),
        "settle": lambda: intents.settle(["r"]),
    }
    for event in events:
        happen[event]()
    assert wanted(runtime, intents) == expected


def test_unit_files_of_an_earlier_daemon_are_its_memory() -> None:
    intents = Intents()
    left = UnitRecord(runtime_id="t", leaving=True)
    intents.recall([UnitRecord(runtime_id="r"), UnitRecord(runtime_id="s", hold=True), left])
    assert wanted("keepWarm: false", intents) == (True, False)
    assert (intents.held, set(intents.requested)) == ({"s"}, {"r"})
