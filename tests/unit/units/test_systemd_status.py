"""systemd's properties and object paths, read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from units.backend import ActiveState, UnitStatus
from units.names import engine_unit_name
from units.systemd.status import UnitPropertiesUnreadable, parse_seconds, parse_status, unit_name, unit_path

RUNNING: dict[str, object] = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "InvocationID": [0, 254, 16],
    "Service.Result": "success",
    "Service.MainPID": 4711,
    "Service.ExecMainStatus": 0,
    "Service.NRestarts": 2,
    "Service.StatusText": "serving",
}


def test_a_running_unit_is_read_whole() -> None:
    assert parse_status("a.service", RUNNING) == UnitStatus(
        name="a.service",
        loaded=True,
        active_state=ActiveState.ACTIVE,
        sub_state="running",
        result="success",
        main_pid=4711,
        exec_main_status=0,
        restarts=2,
        status_text="serving",
        invocation_id="00fe10",
    )


@pytest.mark.parametrize("load_state", ["not-found", "bad-setting", "error", "masked", "merged", "stub", ""])
def test_only_a_loaded_unit_is_loaded(load_state: str) -> None:
    assert not parse_status("a.service", {**RUNNING, "LoadState": load_state}).loaded


def test_what_is_missing_or_of_a_foreign_type_counts_as_nothing() -> None:
    status = parse_status("a.service", {"ActiveState": "inactive", "Service.MainPID": "4711", "SubState": 3})
    assert (status.main_pid, status.sub_state, status.result, status.invocation_id) == (0, "", "success", "")


@pytest.mark.parametrize("state", ["", "maintenance", "on fire"])
def test_a_state_that_we_do_not_know_is_an_error(state: str) -> None:
    with pytest.raises(UnitPropertiesUnreadable):
        parse_status("a.service", {**RUNNING, "ActiveState": state})


@pytest.mark.parametrize(
    ("value", "seconds"), [(1_500_000, 1.5), (0, 0.0), (2**64 - 1, 60.0), (90_000_000, 90.0), (None, 60.0), ("", 60.0)]
)
def test_a_time_is_bounded_where_systemd_knows_no_bound(value: object, seconds: float) -> None:
    assert parse_seconds(value, infinity_s=60.0) == seconds


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=1))
def test_an_object_path_leads_back_to_its_unit(runtime_id: str) -> None:
    name = engine_unit_name(runtime_id)
    assert unit_name(unit_path(name)) == name


def test_paths_are_escaped_as_systemd_does_it() -> None:
    assert unit_path("llmgw-engine-a.service") == "/org/freedesktop/systemd1/unit/llmgw_2dengine_2da_2eservice"
