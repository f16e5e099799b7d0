"""How state reads in a terminal."""

from datetime import UTC, datetime

import pytest

from cli.views import age, base_url, mebibytes, node_lines, reason, runtime_details
from core.api import ConfigStatus, GateStatus, KvEventsStatus, NodeState, RuntimeStatus

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("since", "shown"),
    [
        ("2026-01-02T11:59:58Z", "2 s"),
        ("2026-01-02T11:30:00Z", "30 min"),
        ("2026-01-02T11:30:00+00:00", "30 min"),
        ("2026-01-02T10:30:00+01:00", "2 h"),
        ("2026-01-02T09:00:00", "3 h"),
        ("2025-12-25T09:00:00Z", "8 d"),
        ("2026-01-02T12:00:09Z", "0 s"),
        ("", "-"),
        ("yesterday", "-"),
    ],
)
def test_an_age_is_one_number_with_its_unit(since: str, shown: str) -> None:
    assert age(since, NOW) == shown


@pytest.mark.parametrize(("value", "shown"), [(None, "-"), (0, "0 MiB"), (512, "512 MiB"), (12595, "12.3 GiB")])
def test_unknown_memory_is_a_dash_and_never_zero(value: int | None, shown: str) -> None:
    assert mebibytes(value) == shown


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("gpu-3", "http://gpu-3:80"),
    ],
)
def test_the_url_is_one_that_this_machine_reaches(host: str, url: str) -> None:
    assert base_url(host, 80) == url


def test_the_reason_says_what_keeps_a_runtime_where_it_is() -> None:
    runtime = RuntimeStatus(id="q", state="stopped", reason="stopped by an operator", hold=True, restarts=2)

    assert reason(runtime) == "stopped by an operator; held: only runtime-start brings it back; restarted 2 x"


def test_what_keeps_the_gateway_from_serving_as_the_config_says_stands_below_it() -> None:
    state = NodeState(
        node="n", version="1", pid=1, started_at="", service_manager="systemd", config=ConfigStatus(path="/c"),
        server_host="127.0.0.1", server_port=8100, gateway_complaints=["c.pem: key values mismatch"],
    )  # fmt: skip
    lines = node_lines(state, NOW)
    at = next(index for index, line in enumerate(lines) if line.startswith("gateway"))
    assert lines[at + 1].strip() == "NOT as the config says: c.pem: key values mismatch"


def test_a_runtime_that_tells_of_its_cache_shows_where() -> None:
    told = KvEventsStatus(endpoint="ipc:///run/x/kv", replay="ipc:///run/x/old")
    lines = runtime_details(RuntimeStatus(id="q", state="running", kv_events=told), NOW)
    assert "  kv events  ipc:///run/x/kv" in lines


def test_a_gated_runtime_shows_its_gate() -> None:
    gate = GateStatus(unit="llmgw-gate-q.service", state="failed", port=8201, engine_port=8202)
    lines = runtime_details(RuntimeStatus(id="q", state="running", gate=gate), NOW)
    assert lines[-1].split() == [
        "gate", "llmgw-gate-q.service,", "failed,", "port", "8201", "before", "the", "engine's", "8202",
    ]  # fmt: skip
    assert not any("gate" in line for line in runtime_details(RuntimeStatus(id="q", state="running"), NOW))


def test_a_failed_runtime_shows_the_engines_last_lines() -> None:
    runtime = RuntimeStatus(id="q", state="failed", reason="exited with 1", log=["loading", "out of memory"])

    lines = runtime_details(runtime, NOW)

    assert lines[0] == "q"
    assert lines[-2:] == ["    loading", "    out of memory"]
