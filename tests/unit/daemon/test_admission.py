"""Admission and eviction as tables. Sizes in GiB here, times in seconds."""

from collections.abc import Mapping

import pytest

from daemon.runtimes.admission import Plan, Verdict, plan_admission
from daemon.runtimes.eviction import Asking, Protected, eviction_order, protection
from daemon.runtimes.memory import HOST, Budget, Pool, Resident

G = 1024


def loaded(runtime_id: str, gib: float, **fields: object) -> Resident:
    needs = fields.pop("needs", {HOST: int(gib * G)})
    fields.setdefault("idle_s", 100.0)
    fields.setdefault("resident_s", 1000.0)
    return Resident(runtime_id, True, needs, **fields)  # type: ignore[arg-type]


def ask(gib: float | None, **needs: float) -> Resident:
    wanted = {HOST: int(gib * G)} if gib is not None else {}
    wanted |= {name: int(size * G) for name, size in needs.items()}
    return Resident("new", False, wanted)


def host(budget: float, used: float | None = None) -> Pool:
    return Pool(HOST, int(budget * G), None if used is None else int(used * G))


def plan(request: Resident, residents: list[Resident], *pools: Pool, **asking: object) -> Plan:
    return plan_admission(request, residents, pools, Asking("new", **asking))  # type: ignore[arg-type]


A = loaded("a", 10)
BUSY = loaded("busy", 10, active=1)
WAITED = loaded("waited", 10, waiting=1)
PIN = loaded("pin", 10, keep_warm=True)
SOFT = loaded("soft", 10, preferred_warm=True)
FRESH = loaded("fresh", 10, resident_s=5.0)
THEIRS = loaded("theirs", 10, owner="leader")
LEAVING = loaded("leaving", 10, keep_warm=True, active=1, idle_s=0.0, resident_s=0.0, leaving=True)
STARTS = loaded("starts", 10, idle_s=None, starting=True)
RESTARTS = loaded("restarts", 10, restarting=True)
USED_PIN = loaded("used-pin", 10, keep_warm=True, active=1)


@pytest.mark.parametrize(
    ("name", "request_", "residents", "pool", "verdict", "evict"),
    [
        ("an empty node", ask(10), [], host(40), Verdict.ADMITTED, ()),
        ("exactly the budget", ask(40), [], host(40), Verdict.ADMITTED, ()),
        ("one MiB too much", Resident("new", False, {HOST: 40 * G + 1}), [], host(40), Verdict.IMPOSSIBLE, ()),
        ("beside another", ask(10), [A], host(40), Verdict.ADMITTED, ()),
        ("another must go", ask(35), [A], host(40), Verdict.ADMITTED, ("a",)),
        ("nothing goes when that is not enough", ask(50), [A], host(40), Verdict.IMPOSSIBLE, ()),
        ("two must go", ask(30), [A, loaded("b", 10, idle_s=50.0), BUSY], host(40), Verdict.ADMITTED, ("a", "b")),
        ("only as many as needed", ask(20), [A, loaded("b", 10, idle_s=50.0)], host(35), Verdict.ADMITTED, ("a",)),
        ("a busy one stays", ask(35), [BUSY], host(40), Verdict.BUSY, ()),
        ("one with waiters stays", ask(35), [WAITED], host(40), Verdict.BUSY, ()),
        ("a pin stays", ask(35), [PIN], host(40), Verdict.KEEP_WARM, ()),
        ("a busy pin is told as busy", ask(35), [USED_PIN], host(40), Verdict.BUSY, ()),
        ("a delegated one stays", ask(35), [THEIRS], host(40), Verdict.AUTHORITY, ()),
        ("a fresh one stays for a while", ask(35), [FRESH], host(40), Verdict.BUSY, ()),
        ("one that leaves is in nobody's way", ask(35), [LEAVING], host(40), Verdict.ADMITTED, ("leaving",)),
        ("nor goes another where that is enough", ask(25), [A, LEAVING], host(40), Verdict.ADMITTED, ("leaving",)),
        ("one that starts for somebody stays", ask(35), [STARTS], host(40), Verdict.BUSY, ()),
        ("one that restarts stays", ask(35), [RESTARTS], host(40), Verdict.BUSY, ()),
        ("neither hides an idle one", ask(25), [A, STARTS, RESTARTS], host(45), Verdict.ADMITTED, ("a",)),
        ("a pin that restarts is told as a pin", ask(35), [loaded("p", 10, keep_warm=True, restarting=True)], host(40),
         Verdict.KEEP_WARM, ()),
        ("a delegated one that leaves stays", ask(35), [loaded("l", 10, leaving=True, owner="x")], host(40),
         Verdict.AUTHORITY, ()),
        ("a soft one goes", ask(35), [SOFT], host(40), Verdict.ADMITTED, ("soft",)),
        ("ordinary before soft, though used later", ask(25), [SOFT, loaded("b", 10, idle_s=1.0)], host(40),
         Verdict.ADMITTED, ("b",)),
        ("soft only when ordinary is not enough", ask(35), [SOFT, loaded("b", 10, idle_s=1.0)], host(40),
         Verdict.ADMITTED, ("b", "soft")),
        ("the pin is to blame, not the busy one", ask(35), [PIN, loaded("b", 1, active=1)], host(40),
         Verdict.KEEP_WARM, ()),
        ("the busy one is to blame, not the pin", ask(35), [BUSY, loaded("p", 1, keep_warm=True)], host(40),
         Verdict.BUSY, ()),
        ("pin and delegated: delegated when the pin alone would not do", ask(35), [PIN, THEIRS], host(40),
         Verdict.AUTHORITY, ()),
        ("an idle one does not hide the pin", ask(35), [PIN, A], host(40), Verdict.KEEP_WARM, ()),
        ("other programs count", ask(10), [], host(40, used=35), Verdict.IMPOSSIBLE, ()),
        ("other programs beside an idle runtime", ask(10), [A], host(40, used=35), Verdict.ADMITTED, ("a",)),
        ("measured below the estimates: the estimates count", ask(25), [A, BUSY], host(40, used=2),
         Verdict.ADMITTED, ("a",)),
        ("measured above the estimates: the measure counts", ask(64), [loaded("a", 20)], host(115.2, used=68),
         Verdict.ADMITTED, ("a",)),
        ("measured above, and it does not help", ask(64), [loaded("a", 1)], host(115.2, used=68),
         Verdict.IMPOSSIBLE, ()),
        ("an unreadable measure leaves the estimates", ask(10), [A], host(40, used=None), Verdict.ADMITTED, ()),
        ("an unknown size", ask(None), [], host(40), Verdict.UNKNOWN_SIZE, ()),
        ("loaded already", loaded("new", 10), [], host(1), Verdict.ADMITTED, ()),
        ("not loaded ones do not count", ask(35), [Resident("z", False, {HOST: 99 * G})], host(40),
         Verdict.ADMITTED, ()),
        ("no budget at all", ask(1), [], host(0), Verdict.IMPOSSIBLE, ()),
        ("its own old entry does not count twice", ask(30), [Resident("new", False, {HOST: 30 * G})], host(40),
         Verdict.ADMITTED, ()),
    ],
)  # fmt: skip
def test_on_the_host(
    name: str, request_: Resident, residents: list[Resident], pool: Pool, verdict: Verdict, evict: tuple[str, ...]
) -> None:
    got = plan(request_, residents, pool, min_residency_s=30.0)
    assert (got.verdict, got.evict) == (verdict, evict), name


def gpus(*uses: tuple[float, float | None]) -> list[Pool]:
    return [
        Pool(f"g{i}", int(total * G), None if used is None else int(used * G), f"GPU {i}")
        for i, (total, used) in enumerate(uses)
    ]


def on(runtime_id: str, needs: Mapping[str, float], **fields: object) -> Resident:
    return loaded(runtime_id, 0, needs={name: int(gib * G) for name, gib in needs.items()}, **fields)


@pytest.mark.parametrize(
    ("name", "needs", "residents", "pools", "verdict", "evict"),
    [
        ("its card is free", {"g0": 20}, [on("a", {"g1": 24})], gpus((24, 0), (24, 24)), Verdict.ADMITTED, ()),
        ("its card is full", {"g0": 20}, [on("a", {"g0": 24})], gpus((24, 24), (24, 0)), Verdict.ADMITTED, ("a",)),
        ("a neighbour on another card stays", {"g0": 20}, [on("a", {"g0": 24}), on("b", {"g1": 24}, idle_s=900.0)],
         gpus((24, 24), (24, 24)), Verdict.ADMITTED, ("a",)),
        ("both cards", {"g0": 20, "g1": 20}, [on("a", {"g0": 24}), on("b", {"g1": 24})],
         gpus((24, 24), (24, 24)), Verdict.ADMITTED, ("a", "b")),
        ("one that spans both goes once", {"g0": 20, "g1": 20}, [on("a", {"g0": 24, "g1": 24})],
         gpus((24, 24), (24, 24)), Verdict.ADMITTED, ("a",)),
        ("one of two cards is blocked: nothing goes", {"g0": 20, "g1": 20},
         [on("a", {"g0": 24}), on("b", {"g1": 24}, active=1)], gpus((24, 24), (24, 24)), Verdict.BUSY, ()),
        ("a foreign process fills the card", {"g0": 20}, [], gpus((24, 10)), Verdict.IMPOSSIBLE, ()),
        ("a foreign process left room", {"g0": 12}, [], gpus((24, 10)), Verdict.ADMITTED, ()),
        ("host is full, the card is not", {HOST: 4, "g0": 12}, [loaded("a", 40)],
         [host(40, 40), *gpus((24, 0))], Verdict.ADMITTED, ("a",)),
        ("a full host does not matter to one that needs none of it", {"g0": 12}, [BUSY],
         [host(10, 10), *gpus((24, 0))], Verdict.ADMITTED, ()),
        ("larger than any card", {"g0": 30}, [on("a", {"g0": 24})], gpus((24, 24)), Verdict.IMPOSSIBLE, ()),
        ("a pinned model on the card", {"g0": 20}, [on("a", {"g0": 24}, keep_warm=True)], gpus((24, 24)),
         Verdict.KEEP_WARM, ()),
    ],
)  # fmt: skip
def test_on_cards(
    name: str,
    needs: dict[str, float],
    residents: list[Resident],
    pools: list[Pool],
    verdict: Verdict,
    evict: tuple[str, ...],
) -> None:
    got = plan(Resident("new", False, {n: int(g * G) for n, g in needs.items()}), residents, *pools)
    assert (got.verdict, got.evict) == (verdict, evict), name


@pytest.mark.parametrize(
    ("resident", "asking", "expected"),
    [
        (A, Asking("new"), None),
        (A, Asking("a"), Protected.REQUESTED),
        (BUSY, Asking("new"), Protected.ACTIVE),
        (WAITED, Asking("new"), Protected.ACTIVE),
        (PIN, Asking("new"), Protected.KEEP_WARM),
        (USED_PIN, Asking("new"), Protected.ACTIVE),
        (THEIRS, Asking("new"), Protected.AUTHORITY),
        (FRESH, Asking("new", min_residency_s=5.0), None),
        (FRESH, Asking("new", min_residency_s=5.1), Protected.RESIDENCY),
        (BUSY, Asking("new", may_drain=True, min_residency_s=30.0), None),
        (
            loaded("x", 1, active=1, resident_s=20.0),
            Asking("new", may_drain=True, min_residency_s=30.0),
            Protected.ACTIVE,
        ),
        (USED_PIN, Asking("new", may_drain=True), Protected.KEEP_WARM),
        (SOFT, Asking("new"), None),
        (SOFT, Asking("new", as_preferred=True), Protected.PREFERRED),
        (loaded("x", 1, idle_s=29.0), Asking("new", as_preferred=True), Protected.RESIDENCY),
        (loaded("x", 1, idle_s=30.0), Asking("new", as_preferred=True), None),
        (loaded("x", 1, idle_s=None, resident_s=31.0), Asking("new", as_preferred=True), None),
    ],
)
def test_protection(resident: Resident, asking: Asking, expected: Protected | None) -> None:
    assert protection(resident, asking) is expected


@pytest.mark.parametrize(
    ("residents", "expected"),
    [
        ([loaded("new", 1, idle_s=1.0), loaded("old", 1, idle_s=9.0)], ["old", "new"]),
        ([loaded("used", 1, idle_s=9.0), loaded("never", 1, idle_s=None, resident_s=10.0)], ["never", "used"]),
        ([loaded("hi", 1, priority=200), loaded("lo", 1, priority=1)], ["lo", "hi"]),
        ([loaded("small", 1), loaded("large", 9)], ["large", "small"]),
        ([loaded("b", 1), loaded("a", 1)], ["a", "b"]),
        ([loaded("busy", 1, active=1, idle_s=900.0), loaded("idle", 1, idle_s=1.0)], ["idle", "busy"]),
        ([loaded("lru", 1, idle_s=9.0, priority=900), loaded("mru", 9, idle_s=1.0, priority=1)], ["lru", "mru"]),
        ([loaded("soft", 1, idle_s=900.0, preferred_warm=True), loaded("ord", 1, idle_s=1.0)], ["ord", "soft"]),
    ],
)
def test_eviction_order(residents: list[Resident], expected: list[str]) -> None:
    assert [resident.runtime_id for resident in eviction_order(residents)] == expected


@pytest.mark.parametrize(
    ("budget", "total", "expected"),
    [
        (Budget(node_budget_mib=5, policy_budget_mib=6, max_utilization=0.5), 100, 5),
        (Budget(policy_budget_mib=6, max_utilization=0.5), 100, 6),
        (Budget(max_utilization=0.9, declared_mib=128 * G), 119 * G, int(119 * G * 0.9)),
        (Budget(max_utilization=0.9, declared_mib=64 * G), 119 * G, int(64 * G * 0.9)),
        (Budget(reserve_mib=8 * G, declared_mib=64 * G), 119 * G, 56 * G),
        (Budget(max_utilization=0.5), 100, 50),
        (Budget(reserve_mib=8 * G), 64 * G, 56 * G),
        (Budget(reserve_mib=8 * G), 4 * G, 3 * G),
        (Budget(reserve_mib=0), 100, 100),
    ],
)
def test_the_first_budget_that_is_set_wins(budget: Budget, total: int, expected: int) -> None:
    assert budget.of(total) == expected


@pytest.mark.parametrize(
    ("request_", "residents", "words"),
    [
        (ask(35), [PIN], "new needs 35.0 GiB of memory, 30.0 GiB are free; pin (keep-warm) stays"),
        (ask(35), [BUSY, WAITED], "new needs 35.0 GiB of memory, 20.0 GiB are free; "
         "busy (active-requests) and waited (active-requests) stay"),
        (ask(50), [A], "new needs 50.0 GiB of memory, 30.0 GiB are free, and stopping everything would not be enough: "
         "the budget is 40.0 GiB"),
        (ask(35), [A], "new needs 35.0 GiB of memory; it fits once a is stopped"),
        (ask(0.5), [], "new needs 512 MiB of memory; it fits"),
    ],
)  # fmt: skip
def test_the_words_of_a_plan(request_: Resident, residents: list[Resident], words: str) -> None:
    assert plan(request_, residents, host(40)).message == words


def test_a_permanent_refusal_is_not_retryable() -> None:
    assert {verdict for verdict in Verdict if verdict.is_retryable} == {Verdict.BUSY}
