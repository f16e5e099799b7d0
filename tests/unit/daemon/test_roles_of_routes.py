"""Which of the daemon's routes the gateway's user may ask: it runs and shows, and never installs, removes or writes."""

import pytest

from daemon.local_api import (
    admission,
    engines,
    firewall,
    hardware,
    jobs,
    runtimes,
    state,
    usage,
    verification,
    weights,
    wipe,
)
from daemon.local_api.access import Role

ROWS: list[tuple[type[object], Role]] = [
    (state.State, Role.GATEWAY),
    (state.Routes, Role.GATEWAY),
    (state.Reload, Role.ADMIN),
    (runtimes.RuntimeStart, Role.GATEWAY),
    (runtimes.RuntimeStop, Role.GATEWAY),
    (runtimes.RuntimeRestart, Role.GATEWAY),
    (runtimes.RuntimeLogs, Role.ADMIN),
    (admission.RuntimePlan, Role.GATEWAY),
    (admission.RuntimeAdmit, Role.GATEWAY),
    (admission.RuntimeWarmup, Role.GATEWAY),
    (admission.Serving, Role.GATEWAY),
    (admission.ActivityReports, Role.GATEWAY),
    (engines.Engines, Role.GATEWAY),
    (engines.EngineInstall, Role.ADMIN),
    (engines.EngineRemove, Role.ADMIN),
    (engines.EngineRollback, Role.ADMIN),
    (engines.EnginePrune, Role.ADMIN),
    (weights.Weights, Role.GATEWAY),
    (weights.WeightsPrune, Role.ADMIN),
    (jobs.WeightsFetch, Role.ADMIN),
    (verification.WeightsVerify, Role.ADMIN),
    (hardware.Hardware, Role.GATEWAY),
    (hardware.HardwareClear, Role.ADMIN),
    (hardware.Doctor, Role.GATEWAY),
    (firewall.FirewallResource, Role.GATEWAY),
    (usage.Usage, Role.GATEWAY),
    (wipe.Wipe, Role.ADMIN),
]


@pytest.mark.parametrize(("resource", "role"), ROWS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_route_of_the_daemon_asks_for_its_role(resource: type[object], role: Role) -> None:
    assert getattr(resource, "role", Role.ADMIN) is role
