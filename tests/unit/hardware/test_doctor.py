"""Each check of the doctor on the facts that it looks at: found, blocks or not, and a remedy."""

from dataclasses import replace
from pathlib import Path

import pytest

from core.api import BackendStatus, GateStatus
from core.config.load import parse_config
from core.config.problem import ConfigErrors
from core.firewall import FirewallState, PeerState
from core.hardware import (
    Adapter,
    Card,
    CardProcess,
    Cpu,
    Disk,
    Driver,
    HardwareState,
    InfinibandPort,
    Memory,
    Problem,
    Source,
)
from daemon.hardware.checks.ports import is_reserved
from daemon.hardware.doctor import examine
from daemon.hardware.facts import Facts, FailedRuntime, GatewayPort

CONFIG = parse_config(b"", Path("c"), {}).config
OFFLINE = parse_config(b"offline: {mirror: /srv/mirror}", Path("c"), {}).config
FINE = HardwareState(
    cpu=Cpu(model="X", architecture="x86_64", logical_cpus=2, features=["avx", "avx2", "fma", "f16c"]),
    memory=Memory(total_mib=4096, available_mib=2048),
    disks=[Disk(path="/var/lib/llmgw", purpose="state", device="/dev/sda", free_mib=5000)],
)
FACTS = Facts(
    node="n", daemon_runs=True, daemon_hint="", config=CONFIG, config_path="/etc/llmgw/config.yaml", config_error="",
    hardware=FINE, gateway=GatewayPort("127.0.0.1", 8100, "ours"), engine_user="llmgw-engine", engine_user_needed=True,
    engine_user_exists=True, ephemeral_ports="32768\t60999", reserved_ports="",
)  # fmt: skip


def bad(facts: Facts) -> list[tuple[str, str]]:
    report = examine(facts, "now")
    assert report.ok is (report.blockers == 0)
    assert all(finding.remedy for finding in report.findings if finding.status != "ok")
    assert all(not finding.remedy for finding in report.findings if finding.status == "ok")
    return [(finding.check, finding.status) for finding in report.findings if finding.status != "ok"]


def on(**changes: object) -> Facts:
    return replace(FACTS, **changes)  # type: ignore[arg-type]  # a table of single changes


def peered(peer: PeerState) -> FirewallState:
    return FirewallState(enabled=True, state="guarded", since="now", peers=[peer])


def hardware(**changes: object) -> Facts:
    kept = {name: getattr(FINE, name) for name in FINE.__struct_fields__}
    return replace(FACTS, hardware=HardwareState(**{**kept, **changes}))


def cpu(*features: str, architecture: str = "x86_64", hypervisor: bool = True) -> Cpu:
    return Cpu(model="kvm64", architecture=architecture, features=list(features), hypervisor=hypervisor)


def source(name: str, code: str) -> Source:
    return Source(name=name, error=Problem(code=code, message="m", hint="h", blocks=True))


XID = Problem(code="xid_79", message="m", hint="h", blocks=True, clearable=True)
PORT = InfinibandPort(number=1, state="DOWN", problems=[Problem(code="infiniband_port_down", message="m", hint="h")])


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (FACTS, []),
        (on(daemon_runs=False, daemon_hint="start it"), [("daemon", "blocks")]),
        (on(config=None, config_error="bad", gateway=None), [("config", "blocks")]),
        (on(config_error="bad"), [("config", "warning")]),
        (on(keys_fault="client-keys.json is not a file of keys"), [("keys", "blocks")]),
        (on(gateway=GatewayPort("::", 8100, "other")), [("gateway", "blocks")]),
        (on(gateway=GatewayPort("::", 8100, "silent")), [("gateway", "blocks")]),
        (on(gateway=GatewayPort("::", 8100, "free")), [("gateway", "blocks")]),
        (on(gateway_complaints=("c.pem: key values mismatch",)), [("gateway", "warning")]),
        (on(engine_user_exists=False), [("engine user", "blocks")]),
        (on(engine_user_exists=False, engine_user_needed=False), []),
        (on(ephemeral_ports="1024 65000"), [("engine ports", "warning")]),
        (on(ephemeral_ports="1024 65000", reserved_ports="8000-9000"), []),
        (on(ephemeral_ports=""), []),
        (on(failed_runtimes=(FailedRuntime("r", "exited", ""),)), [("runtimes", "blocks")]),
        (on(backends=(BackendStatus(id="b", state="ready", last_error="it was away"),)), []),
        (on(backends=(BackendStatus(id="b", state="resting"),)), []),
        (on(backends=(BackendStatus(id="b", state="out", last_error="expired"),)), [("backends", "warning")]),
        (on(backends=(BackendStatus(id="b", state="failed", reason="no room"),)), [("backends", "blocks")]),
        (on(firewall=peered(PeerState(host="10.1.0.2", nodes=["b"], addresses=["10.1.0.2"]))), []),
        (on(firewall=peered(PeerState(host="b.lan", nodes=["b"], problem="no"))), [("firewall", "warning")]),
        (on(gates_down=(("art", GateStatus(unit="llmgw-gate-art.service", state="failed")),)), [("gates", "blocks")]),
        (on(unreadable_units=(("llmgw-engine-r.service", "it has no section"),)), [("units", "warning")]),
        (on(config=OFFLINE), []),
        (on(config=OFFLINE, absent_mirrors=("/srv/mirror",)), [("mirrors", "warning")]),
        (hardware(cpu=cpu()), [("processor", "warning")]),
        (hardware(cpu=cpu("avx", "fma", "f16c", hypervisor=False)), [("processor", "warning")]),
        (hardware(cpu=cpu("asimd", architecture="aarch64")), []),
        (hardware(cpu=None), [("processor", "warning")]),
        (hardware(memory=None), [("memory", "warning")]),
        (hardware(memory=Memory(total_mib=1024, available_mib=100)), [("memory", "warning")]),
        (hardware(disks=[Disk(path="/x", purpose="weights", free_mib=50)]), [("disks", "blocks")]),
        (hardware(disks=[Disk(path="/x", purpose="weights", free_mib=500)]), [("disks", "warning")]),
        (hardware(disks=[Disk(path="/x", purpose="weights")]), [("disks", "warning")]),
        (hardware(sources=[source("nvidia-smi", "nvidia_library_mismatch")]), [("nvidia driver", "blocks")]),
        (hardware(driver=Driver(version="580.1", flavour="open")), []),
        (hardware(problems=[Problem(code="card_gone", message="m", hint="h")]), [("nvidia driver", "warning")]),
        (hardware(cards=[Card(uuid="GPU-1", name="X", index=0)]), []),
        (hardware(cards=[Card(uuid="GPU-1", name="X", placeable=False, problems=[XID])]), [("cards", "warning")]),
        (hardware(infiniband=[Adapter(name="mlx5_0", ports=[PORT])]), [("infiniband", "warning")]),
        (hardware(problems=[Problem(code="fabric_down", message="m", hint="h")]), [("infiniband", "blocks")]),
        (
            hardware(
                sources=[source("udev", "udev_unavailable")],
                problems=[Problem(code="udev_unavailable", message="m", hint="h")],
            ),
            [("udev", "warning")],
        ),
        (hardware(sources=[source("kernel-log", "kernel_log_unreadable")]), []),
    ],
)
def test_a_check_names_its_fault_and_no_other(facts: Facts, expected: list[tuple[str, str]]) -> None:
    assert bad(facts) == expected


def test_several_faults_are_each_named() -> None:
    facts = replace(hardware(cpu=cpu()), engine_user_exists=False, gateway=GatewayPort("127.0.0.1", 8100, "other"))
    report = examine(facts, "now")
    assert (report.ok, report.blockers, report.warnings) == (False, 2, 1)
    assert bad(facts) == [("gateway", "blocks"), ("engine user", "blocks"), ("processor", "warning")]


def test_a_driver_that_fails_is_told_once_and_not_again_for_each_card() -> None:
    error = source("nvidia-smi", "nvidia_library_mismatch")
    assert error.error is not None
    out = Card(uuid="GPU-1", name="X", placeable=False, problems=[error.error])
    assert bad(hardware(sources=[error], cards=[out, out])) == [("nvidia driver", "blocks")]


def test_memory_of_others_is_shown_with_pid_and_user() -> None:
    process = CardProcess(pid=9041, name="python", user="ann", memory_mib=100)
    card = Card(uuid="GPU-1", name="X", index=0, processes=[process], foreign_mib=100, available_mib=5)
    found = [finding.found for finding in examine(hardware(cards=[card]), "now").findings if finding.check == "cards"]
    assert any("100 MiB" in text and "pid 9041, ann" in text for text in found)


@pytest.mark.parametrize(
    ("reserved", "expected"),
    [
        ("", False),
        ("8201-8299", True),
        ("1-2,8000-9000", True),
        ("8201-8250,8251-8299", False),
        ("8201", False),
        ("x-y", False),
    ],
)
def test_reserved_ports(reserved: str, expected: bool) -> None:
    assert is_reserved(8201, 8299, reserved) is expected


def test_an_adapter_under_two_fabrics_is_refused() -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_config(b"hardware: {fabrics: {a: [mlx5_0], b: [mlx5_1, mlx5_0]}}", Path("c"), {})
    assert [problem.path for problem in caught.value.problems] == ["hardware.fabrics.b"]
