"""Hardware on an installed node: cards that come and go under the sandboxed daemon, and what the doctor finds."""

import contextlib
import json
from collections.abc import Iterator

import pytest

from core.hardware import Card, DoctorReport, HardwareState
from tests.hosts.harness import Host
from tests.hosts.machine import Machine, doctor, machine
from tests.hosts.package import installed_host, wait_active
from tests.patience import MOMENT_S

FOLLOWS_WITHIN_S = 2.0 + MOMENT_S
CARD = "0000:01:00.0"


@pytest.fixture(scope="module")
def node() -> Iterator[Machine]:
    """One machine for the tests that leave it as they found it: without a card, its port active."""
    with machine("hw") as made:
        yield made


@contextlib.contextmanager
def plugged_in(node: Machine) -> Iterator[None]:
    node.smi.mode("ok")
    node.order("add-card", CARD)
    try:
        node.until(lambda state: any(card.placeable for card in state.cards))
        yield
    finally:
        node.smi.mode("fail no-devices")
        node.order("remove-card", CARD)
        node.until(lambda state: not state.cards)
        node.host.run("llmgw", "hardware", "clear", "all")


def the_card(state: HardwareState) -> Card | None:
    return state.cards[0] if state.cards else None


def codes(state: HardwareState) -> set[str]:
    card = the_card(state)
    return {problem.code for problem in card.problems} if card else set()


def devices_told(node: Machine) -> list[object]:
    """What `/gateway/node` says of GPUs."""
    telemetry = node.gateway_node()["telemetry"]
    assert isinstance(telemetry, dict)
    gpu = telemetry["gpu"]
    return [] if gpu is None else [device["class"] for device in gpu["devices"]]


def test_a_card_that_appears_is_told_everywhere_within_two_seconds_and_one_that_goes_too(node: Machine) -> None:
    assert node.hardware().cards == [] and node.doctor()[0] == 0

    node.smi.mode("ok")
    node.order("add-card", CARD)
    assert node.until(lambda state: any(card.placeable for card in state.cards)) <= FOLLOWS_WITHIN_S
    assert devices_told(node) == ["rtx-4090"]
    assert [finding.status for finding in node.doctor()[1].findings if finding.check == "cards"] == ["ok", "ok"]

    node.smi.mode("fail no-devices")
    node.order("remove-card", CARD)
    assert node.until(lambda state: not state.cards) <= FOLLOWS_WITHIN_S
    assert devices_told(node) == []
    found = [finding for finding in node.doctor()[1].findings if finding.check == "nvidia driver"]
    assert any("is gone" in finding.found and "hardware clear" in finding.remedy for finding in found)

    node.host.run("llmgw", "hardware", "clear", "all")
    assert node.doctor()[0] == 0


def test_an_infiniband_port_that_goes_down_is_told_within_two_seconds(node: Machine) -> None:
    node.order("set-port", "mlx5_0", "1: DOWN", "3: Disabled")
    try:
        assert node.until(lambda state: bool(state.infiniband[0].ports[0].problems)) <= FOLLOWS_WITHIN_S
        code, report = node.doctor()
        assert (code, report.ok, report.blockers) == (9, False, 1)
        told = [(finding.status, finding.found) for finding in report.findings if finding.check == "infiniband"]
        assert told == [
            ("warning", "mlx5_0 port 1 is DOWN (link Disabled)"),
            ("blocks", "no port of fabric fast is active"),
        ]
        answer = node.host.run(
            "curl", "-sS", "--fail", "--max-time", "20", "http://127.0.0.1:8100/gateway/doctor"
        ).stdout
        assert json.loads(answer)["summary"] == {"blockers": 1, "warnings": 1, "actions": 2}
    finally:
        node.order("set-port", "mlx5_0", "4: ACTIVE", "5: LinkUp")
    assert node.until(lambda state: not state.infiniband[0].ports[0].problems) <= FOLLOWS_WITHIN_S


def test_an_xid_takes_the_card_out_over_restarts_until_it_is_cleared(node: Machine) -> None:
    with plugged_in(node):
        node.say(f"[   50.1] NVRM: Xid (PCI:{CARD[:-2]}): 79, pid=1, GPU has fallen off the bus.")
        assert node.until(lambda state: "xid_79" in codes(state)) <= FOLLOWS_WITHIN_S
        shown = node.host.run("llmgw", "hardware").stdout
        assert "OUT" in shown and "XID 79" in shown and "reboot" in shown

        node.host.run("systemctl", "restart", "llmgw-daemon.service")
        node.until(lambda state: "xid_79" in codes(state))

        cleared = node.host.run("llmgw", "hardware", "clear", "0").stdout
        assert "GPU-d289484c" in cleared and "stays out" not in cleared
        node.until(lambda state: any(card.placeable for card in state.cards))
        node.host.run("systemctl", "restart", "llmgw-daemon.service")
        node.until(lambda state: any(card.placeable for card in state.cards))


def test_a_hanging_nvidia_smi_leaves_the_node_serving_and_says_so(node: Machine) -> None:
    with plugged_in(node):
        node.smi.mode("hang")
        node.until(lambda state: any(problem.code == "nvidia_smi_timed_out" for problem in state.problems))
        assert node.gateway_node()["id"] == "hw"
        assert len(node.host.run("pgrep", "--full", "fake.py", check=False).stdout.split()) <= 1
        node.smi.mode("ok")
        node.until(lambda state: not state.problems)


def bad(report: DoctorReport) -> dict[str, str]:
    return {finding.check: finding.status for finding in report.findings if finding.status != "ok"}


def hide_avx(host: Host) -> None:
    """As a virtual machine with an old CPU model looks; to the daemon too, whose sandbox has a /proc of its own."""
    cpuinfo = host.run("sed", "s/ avx[^ ]*//g; s/ fma//; s/ f16c//; s/ amx[^ ]*//g", "/proc/cpuinfo").stdout
    host.path("/opt/cpuinfo").write_text(cpuinfo)
    host.run("mount", "--bind", "/opt/cpuinfo", "/proc/cpuinfo")
    drop_ins = host.path("/etc/systemd/system/llmgw-daemon.service.d")
    drop_ins.mkdir()
    (drop_ins / "cpu.conf").write_text("[Service]\nBindReadOnlyPaths=/opt/cpuinfo:/proc/cpuinfo\n")
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "restart", "llmgw-daemon.service")


def test_the_doctor_finds_nothing_on_a_fresh_node_and_exactly_what_was_planted() -> None:
    with installed_host("doc") as host:
        wait_active(host, "llmgw-daemon.service", "llmgw-gateway.service")
        code, report = doctor(host)
        assert (code, bad(report), report.ok, report.complete) == (0, {}, True, True)
        keys = set(host.run("llmgw", "doctor", "--json").stdout.split('"')[1::2])
        assert {"ok", "complete", "generatedAt", "node", "blockers", "warnings", "findings", "check", "status"} <= keys

        hide_avx(host)
        host.run("systemctl", "stop", "llmgw-gateway.socket", "llmgw-gateway.service")
        host.run("systemd-run", "--unit=squatter", "python3", "-m", "http.server", "8100", "--bind", "127.0.0.1")
        host.run("userdel", "llmgw-engine")
        host.run("curl", "-sS", "--retry", "20", "--retry-connrefused", "--retry-delay", "1", "http://127.0.0.1:8100/")

        code, report = doctor(host)
        assert bad(report) == {"gateway": "blocks", "engine user": "blocks", "processor": "warning"}
        assert (code, report.blockers, report.warnings) == (9, 2, 1)
        remedies = {finding.check: finding.remedy for finding in report.findings if finding.remedy}
        assert "ss -ltnp" in remedies["gateway"] and "systemd-sysusers" in remedies["engine user"]
        assert "7 times slower" in next(f.found for f in report.findings if f.check == "processor")

        host.run("systemctl", "stop", "llmgw-daemon.service")
        code, report = doctor(host)
        assert (code, report.complete) == (9, False)
        assert bad(report) == {
            "daemon": "blocks",
            "gateway": "blocks",
            "engine user": "blocks",
            "processor": "warning",
        }
