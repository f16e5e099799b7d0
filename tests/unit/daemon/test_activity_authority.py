"""Sums over gateway workers; and every caller × action × scope."""

import itertools

import pytest

from core.activity import FORGET_AFTER_S, ActivityReport, RuntimeActivity
from core.runtime import Authority, AuthorityScope
from daemon.activity import Activity, Load
from daemon.runtimes.authority import Action, AuthorityRefused, Caller, Who, may, require


def report(source: str, version: int = 1, epoch: str = "e", **runtime: float) -> ActivityReport:
    activity = RuntimeActivity(
        active=int(runtime.get("active", 0)), waiting=int(runtime.get("waiting", 0)), idle_s=runtime.get("idle_s")
    )
    return ActivityReport(source=source, epoch=epoch, version=version, runtimes={"r": activity})


def test_workers_add_up() -> None:
    activity = Activity()
    activity.take(report("a", active=2, waiting=1), 0.0)
    activity.take(report("b", active=1), 0.0)
    assert activity.load("r", 1.0) == Load(active=3, waiting=1)
    assert activity.load("other", 1.0) == Load()


def test_what_workers_complain_of_is_said_once_and_for_as_long_as_they_do() -> None:
    activity = Activity()
    for source, complaint in (("a", "broken"), ("b", "broken"), ("c", ""), ("d", "also")):
        activity.take(ActivityReport(source=source, epoch="e", version=1, complaint=complaint), 0.0)
    assert activity.complaints(1.0) == ["also", "broken"]
    activity.take(ActivityReport(source="d", epoch="e", version=1), 2.0)
    assert activity.complaints(2.0) == ["broken"]
    assert activity.complaints(FORGET_AFTER_S + 1.0) == []


def test_an_engine_that_works_on_is_busy_until_it_says_that_it_is_not() -> None:
    activity = Activity()
    activity.take(report("a", active=0, idle_s=0.0), 0.0)
    activity.note_own("r", 2, 5.0)
    load = activity.load("r", 6.0)
    assert (load.under_way, load.is_busy, load.active, load.idle_s) == (2, True, 0, 1.0)
    activity.note_own("r", 0, 7.0)
    assert not activity.load("r", 8.0).is_busy
    assert activity.load("r", 8.0).idle_s == 3.0
    activity.note_own("r", 1, 9.0)
    assert not activity.load("r", 9.0 + FORGET_AFTER_S + 1).is_busy


def test_a_newer_report_replaces_the_older_one() -> None:
    activity = Activity()
    activity.take(report("a", active=2), 0.0)
    activity.take(report("a", active=0, idle_s=0.5), 1.0)
    assert activity.load("r", 2.0) == Load(idle_s=1.5)


def test_a_silent_worker_is_forgotten_but_not_when_its_last_request_ended() -> None:
    activity = Activity()
    activity.take(report("a", active=1, idle_s=0.0), 0.0)
    load = activity.load("r", FORGET_AFTER_S + 1)
    assert (load.active, load.idle_s) == (0, FORGET_AFTER_S + 1)


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([], True),
        ([report("a", 2)], True),
        ([report("a", 3), report("b", 2)], True),
        ([report("a", 3), report("b", 1)], False),
        ([report("a", 9, epoch="old")], False),
    ],
)
def test_whether_all_workers_have_seen_a_table(reports: list[ActivityReport], expected: bool) -> None:
    activity = Activity()
    for one in reports:
        activity.take(one, 0.0)
    assert activity.all_have_seen("e", 2, 1.0) is expected


HERE, LEADER = "here", "leader"
OURS = {
    Who.OPERATOR,
    Who.CLIENT,
    Who.KEEP_WARM,
    Who.ADMISSION,
    Who.WATCHDOG,
    Who.CONFIG,
    Who.STOP_ALL,
    Who.CRASH_LOOP,
}


def expected(caller: Caller, action: Action, authority: Authority) -> bool:
    match authority.scope:
        case AuthorityScope.LOCAL:
            return authority.owner == HERE and caller.node == HERE and caller.who in OURS
        case AuthorityScope.DISTRIBUTED_MODEL:
            if authority.owner != HERE or caller.node != HERE:
                return False
            return caller.who is Who.OPERATOR or (caller.who, action) == (Who.CLIENT, Action.START)
        case _:
            return caller.who is Who.OWNER and caller.node == authority.owner


@pytest.mark.parametrize(
    ("who", "node", "action", "scope", "owner"),
    list(itertools.product(Who, (HERE, LEADER), Action, AuthorityScope, (HERE, LEADER))),
)
def test_every_caller_action_and_scope(who: Who, node: str, action: Action, scope: AuthorityScope, owner: str) -> None:
    caller, authority = Caller(who, node), Authority(owner, scope)
    assert may(caller, action, authority, this_node=HERE) is expected(caller, action, authority)


@pytest.mark.parametrize("who", sorted(OURS - {Who.OPERATOR, Who.CLIENT}))
def test_none_of_our_own_mechanisms_touches_a_delegated_member(who: Who) -> None:
    member = Authority(LEADER, AuthorityScope.DISTRIBUTED_MEMBER, group="g")
    assert not any(may(Caller(who, HERE), action, member, this_node=HERE) for action in Action)


@pytest.mark.parametrize(
    ("who", "action"),
    [
        (Who.OPERATOR, Action.WARM_UP),
        (Who.CLIENT, Action.WARM_UP),
        (Who.OPERATOR, Action.START),
        (Who.CRASH_LOOP, Action.RESTART),
        (Who.CRASH_LOOP, Action.STOP),
        (Who.CRASH_LOOP, Action.START),
        (Who.WATCHDOG, Action.RESTART),
        (Who.ADMISSION, Action.EVICT),
    ],
)
@pytest.mark.parametrize("scope", AuthorityScope)
def test_what_is_delegated_is_answered_for_by_its_owner_alone(who: Who, action: Action, scope: AuthorityScope) -> None:
    assert may(Caller(who, HERE), action, Authority(LEADER, scope), this_node=HERE) is False
    assert may(Caller(who, HERE), action, Authority(HERE), this_node=HERE) is True
    is_orders = scope not in (AuthorityScope.LOCAL, AuthorityScope.DISTRIBUTED_MODEL)
    assert may(Caller(Who.OWNER, LEADER), action, Authority(LEADER, scope), this_node=HERE) is is_orders


def test_a_refusal_names_owner_and_caller() -> None:
    with pytest.raises(AuthorityRefused, match="belongs to leader .distributed-member.*operator on here may not stop"):
        require(
            Caller(Who.OPERATOR, HERE),
            Action.STOP,
            "r",
            Authority(LEADER, AuthorityScope.DISTRIBUTED_MEMBER),
            this_node=HERE,
        )
