"""engine-check on engines that run: llama.cpp for real, and the simulated one when it breaks its promises."""

import json
from pathlib import Path

import pytest

from cli.app import main
from core.hardware import Finding
from engines.adapter import Build, EngineSpec, NodeFacts
from engines.registry import get_adapter
from engines.trial import try_engine

FACTS = NodeFacts(cpu_count=2, memory_total_mib=4096)
SIM = Build("sim", "b", "1", Path("/unused"))


Options = dict[str, str | int | float | bool]


def a_spec(engine: str, weights: Path | None = None, options: Options | None = None) -> EngineSpec:
    return EngineSpec(
        "check", engine, ("check",), 1, weights=weights, context_length=512, max_concurrency=2, options=options or {}
    )


def statuses(findings: list[Finding]) -> dict[str, str]:
    return {finding.check: finding.status for finding in findings}


@pytest.mark.engine
async def test_llamacpp_keeps_all_that_its_adapter_promises(llamacpp: Build, tiny_model: Path) -> None:
    findings = await try_engine(get_adapter("llamacpp"), a_spec("llamacpp", tiny_model), llamacpp, FACTS)

    assert statuses(findings) == dict.fromkeys(["start", "key", "answer", "metrics", "abort"], "ok"), findings


@pytest.mark.engine
def test_the_command_checks_a_build_of_the_operators_own(
    llamacpp: Build, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["engine-check", "llamacpp", "--bin", str(llamacpp.executable), "--json", "--state", str(tmp_path)]

    assert main([*arguments, "--model", str(tiny_model)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] and [finding["status"] for finding in report["findings"]] == ["ok"] * 6
    assert main([*arguments, "--model", "/nonexistent"]) == 4


@pytest.mark.engine
async def test_a_model_that_is_none_ends_the_trial_with_the_engines_words(llamacpp: Build, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")

    findings = await try_engine(get_adapter("llamacpp"), a_spec("llamacpp", tmp_path / "x.gguf"), llamacpp, FACTS)

    assert statuses(findings) == {"start": "blocks"}
    assert "it ended: status 1" in findings[0].found


async def test_the_simulated_engine_keeps_its_promises() -> None:
    findings = await try_engine(get_adapter("sim"), a_spec("sim", options={"tokensPerS": 50, "tokens": 20}), SIM, FACTS)

    assert statuses(findings) == dict.fromkeys(["start", "key", "answer", "metrics", "abort"], "ok"), findings


@pytest.mark.parametrize(
    ("options", "broken"),
    [
        ({"refuseStart": True}, "start"),
        ({"healthStatus": 500}, "start"),
        ({"fault": "error", "status": 500}, "answer"),
    ],
)
async def test_a_broken_promise_is_named(options: Options, broken: str) -> None:
    findings = await try_engine(get_adapter("sim"), a_spec("sim", options=options), SIM, FACTS, deadline_s=15)

    assert statuses(findings)[broken] == "blocks"


async def test_an_engine_that_never_becomes_ready_ends_at_its_deadline() -> None:
    findings = await try_engine(get_adapter("sim"), a_spec("sim", options={"loadTimeS": 600}), SIM, FACTS, deadline_s=2)

    assert statuses(findings) == {"start": "blocks"}
