"""What a pass does, as a table: every state × what is wanted."""

import pytest

from core.runtime import RuntimeState as S
from daemon.reconcile import Action, Hold, Note, Remove, Seen, Start, Stop, Wanted, reconcile

RUN = Wanted(run=True, spec_hash="h1", reason="keep warm")
OFF = Wanted(run=False, reason="nobody asked for it")
HELD = Wanted(run=False, hold=True, reason="stopped by an operator")


def seen(
    state: S,
    spec_hash: str = "h1",
    *,
    unit: bool = True,
    hold: bool = False,
    restart: bool = False,
    note: bool = False,
) -> Seen:
    return Seen(state, has_unit=unit, unit_hold=hold, spec_hash=spec_hash, restart=restart, note_due=note)


@pytest.mark.parametrize(
    ("want", "has", "expected"),
    [
        (RUN, seen(S.STOPPED, "", unit=False), Start("r", "keep warm")),
        (RUN, seen(S.STOPPED), Start("r", "keep warm")),
        (RUN, seen(S.STOPPED, hold=True), Start("r", "keep warm")),
        (RUN, seen(S.STARTING), None),
        (RUN, seen(S.WARMING), None),
        (RUN, seen(S.QUEUED, unit=False), Start("r", "keep warm")),
        (RUN, seen(S.RUNNING), None),
        (RUN, seen(S.RUNNING, "h0"), Stop("r", "its settings changed")),
        (RUN, seen(S.STARTING, "h0"), Stop("r", "its settings changed")),
        (RUN, seen(S.RUNNING, restart=True), Stop("r", "restart requested")),
        (RUN, seen(S.STOPPING), None),
        (RUN, seen(S.STOPPING, restart=True), None),
        (RUN, seen(S.DRAINING, "h0"), None),
        (RUN, seen(S.FAILED), None),
        (RUN, seen(S.FAILED, note=True), Note("r")),
        (RUN, seen(S.RUNNING, note=True), Note("r")),
        (RUN, seen(S.FAILED, restart=True, note=True), Start("r", "keep warm")),
        (RUN, seen(S.FAILED, "h0", note=True), Start("r", "keep warm")),
        (OFF, seen(S.FAILED, note=True), Remove("r")),
        (HELD, seen(S.FAILED, note=True), Stop("r", "stopped by an operator", hold=True)),
        (RUN, seen(S.FAILED, restart=True), Start("r", "keep warm")),
        (RUN, seen(S.FAILED, "h0"), Start("r", "keep warm")),
        (OFF, seen(S.STOPPED, unit=False), None),
        (OFF, seen(S.STOPPED), Remove("r")),
        (OFF, seen(S.STOPPED, hold=True), Remove("r")),
        (OFF, seen(S.RUNNING), Stop("r", "nobody asked for it", leave=True)),
        (OFF, seen(S.STARTING), Stop("r", "nobody asked for it", leave=True)),
        (OFF, seen(S.STOPPING), None),
        (OFF, seen(S.QUEUED, unit=False), Stop("r", "nobody asked for it", leave=True)),
        (OFF, seen(S.FAILED), Remove("r")),
        (OFF, seen(S.FAILED, unit=False), None),
        (HELD, seen(S.RUNNING), Stop("r", "stopped by an operator", hold=True)),
        (HELD, seen(S.STARTING, "h0"), Stop("r", "stopped by an operator", hold=True)),
        (HELD, seen(S.FAILED), Stop("r", "stopped by an operator", hold=True)),
        (HELD, seen(S.STOPPED, hold=True), None),
        (HELD, seen(S.STOPPED), Hold("r")),
        (HELD, seen(S.STOPPED, unit=False), None),
    ],
)
def test_one_runtime(want: Wanted, has: Seen, expected: Action | None) -> None:
    assert reconcile({"r": want}, {"r": has}) == ([] if expected is None else [expected])


def test_a_runtime_that_left_the_config_is_stopped_then_removed() -> None:
    assert reconcile({}, {"r": seen(S.RUNNING)}) == [Stop("r", "not in the config", leave=True)]
    assert reconcile({}, {"r": seen(S.STOPPED, hold=True)}) == [Remove("r")]
    assert reconcile({}, {"r": seen(S.STOPPED, unit=False)}) == []


def test_actions_come_in_the_order_of_ids() -> None:
    ids = ["b", "a", "c"]
    actions = reconcile(dict.fromkeys(ids, RUN), {i: seen(S.STOPPED) for i in ids})
    assert [action.runtime_id for action in actions] == ["a", "b", "c"]


def test_a_pass_that_was_carried_out_leaves_nothing_to_do() -> None:
    assert reconcile({"r": RUN}, {"r": seen(S.RUNNING, "h1")}) == []
