"""`llmgw doctor`: runs every check over the facts and sums up. Pure."""

from core.hardware import DoctorReport
from daemon.hardware.checks import CHECKS
from daemon.hardware.checks.finding import BLOCKS, WARNING
from daemon.hardware.facts import Facts


def examine(facts: Facts, generated_at: str) -> DoctorReport:
    findings = [finding for check in CHECKS for finding in check(facts)]
    blockers = sum(finding.status == BLOCKS for finding in findings)
    return DoctorReport(
        ok=blockers == 0,
        complete=facts.daemon_runs,
        generated_at=generated_at,
        node=facts.node,
        blockers=blockers,
        warnings=sum(finding.status == WARNING for finding in findings),
        findings=findings,
    )
