"""Starts an engine on one card, by the card's uuid and, where that fails, by its number: which of them it can read.

Instances of a card in MIG mode have a uuid and no number, so a build that reads numbers only cannot use them.
"""

from dataclasses import replace

from core.errors import LlmgwError
from core.hardware import Finding
from engines.adapter import Build, EngineAdapter, EngineSpec, NodeFacts
from engines.check import FAILED, OK, WARNING
from engines.checked import judge
from engines.trial import try_engine


async def try_on_card(
    adapter: EngineAdapter, spec: EngineSpec, build: Build, facts: NodeFacts, *, deadline_s: float = 600.0
) -> tuple[list[Finding], bool | None]:
    """What the trial found on the card in `spec.devices`, and whether uuids are taken; None: it runs by neither."""
    findings = await _try(adapter, spec, replace(build, takes_uuids=True), facts, deadline_s)
    if judge(findings):
        return [*findings, Finding(check="uuid", status=OK, found="it takes a card by its uuid")], True
    by_number = await _try(adapter, spec, replace(build, takes_uuids=False), facts, deadline_s)
    if judge(by_number):
        found = "it reads cards as numbers only: it is given those, and cannot use an instance of a card in MIG mode"
        return [*by_number, Finding(check="uuid", status=WARNING, found=found)], False
    return findings, None


async def _try(
    adapter: EngineAdapter, spec: EngineSpec, build: Build, facts: NodeFacts, deadline_s: float
) -> list[Finding]:
    try:
        return await try_engine(adapter, spec, build, facts, deadline_s=deadline_s)
    except LlmgwError as error:  # a card without a number cannot be given by one
        return [Finding(check="start", status=FAILED, found=error.message)]
