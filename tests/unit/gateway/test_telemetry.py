"""What leaders and dashboards are told of a node's hardware, on the recorded machines."""

import json

from core.api import ConfigStatus, NodeState
from core.hardware import Card, Cpu, DoctorReport, Finding, HardwareState
from gateway.telemetry import describe_doctor, describe_telemetry


def node(*cards: Card, memory_mib: int | None = 1024, cpu: Cpu | None = None) -> NodeState:
    return NodeState(
        node="n", version="1", pid=1, started_at="", service_manager="systemd", config=ConfigStatus(path=""),
        server_host="", server_port=1, memory_total_mib=memory_mib, memory_available_mib=256, cpu_count=2,
        hardware=HardwareState(cards=list(cards), cpu=cpu, sampled_at="2026-01-01T00:00:00Z"),
    )  # fmt: skip


def test_cards_are_summed_and_instances_are_not_counted_twice() -> None:
    first = Card(uuid="GPU-1", name="A", index=0, memory_total_mib=100, memory_used_mib=10, utilization=80, power_w=1.5)
    second = Card(uuid="GPU-2", name="B", index=1, memory_total_mib=100, memory_used_mib=30, temperature_c=60)
    instance = Card(uuid="MIG-1", name="A MIG", parent="GPU-1", memory_total_mib=50)
    undriven = Card(uuid="", name="C", pci="0000:01:00.0")

    telemetry = describe_telemetry(node(first, second, instance, undriven, cpu=Cpu(model="X", utilization=12.5)))

    assert telemetry is not None
    assert telemetry["cpu"] == {"logicalCpus": 2, "model": "X", "utilization": 0.125}
    assert isinstance(telemetry["memory"], dict) and telemetry["memory"]["utilization"] == 0.75
    gpu = telemetry["gpu"]
    assert isinstance(gpu, dict)
    assert [device["index"] for device in gpu["devices"]] == [0, 1]
    assert {name: gpu[name] for name in gpu if name not in ("devices", "vendor", "backend")} == {
        "utilization": 80.0, "memoryUsedMb": 40, "memoryTotalMb": 200, "temperatureC": 60, "powerDrawW": 1.5,
    }  # fmt: skip
    json.dumps(telemetry)


def test_what_no_card_tells_is_null_and_without_cards_there_is_no_gpu() -> None:
    silent = describe_telemetry(node(Card(uuid="GPU-1", name="NVIDIA GB10", unified=True)))
    assert silent is not None and isinstance(silent["gpu"], dict)
    assert [silent["gpu"][name] for name in ("utilization", "memoryUsedMb", "memoryTotalMb", "powerDrawW")] == [
        None
    ] * 4

    nothing = describe_telemetry(node())
    assert nothing is not None and nothing["gpu"] is None
    assert describe_telemetry(node(memory_mib=None)) is None


def test_a_report_has_its_blockers_its_warnings_and_the_next_step() -> None:
    findings = [
        Finding(check="daemon", status="ok", found="runs"),
        Finding(check="gateway", status="blocks", found="taken", remedy="stop it"),
        Finding(check="processor", status="warning", found="slow", remedy="host CPU"),
    ]
    report = DoctorReport(
        ok=False, complete=True, generated_at="now", node="n", blockers=1, warnings=1, findings=findings
    )

    told = describe_doctor(report)

    assert (told["ok"], told["summary"], told["next"]) == (
        False,
        {"blockers": 1, "warnings": 1, "actions": 2},
        "stop it",
    )
    assert told["blockers"] == [{"check": "gateway", "status": "blocks", "found": "taken", "remedy": "stop it"}]
