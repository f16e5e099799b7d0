"""A workflow's progress as a job's step."""

import pytest

from gateway.routes.workflows import GateProgress, RunningNode, describe_progress


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (GateProgress(state="queued", ahead=2), "waits, 2 ahead"),
        (GateProgress(state="queued", ahead=0), "waits"),
        (GateProgress(state="running"), "running"),
        (GateProgress(state="running", node=RunningNode("KSampler"), step=7.0, steps=20.0), "KSampler 7/20"),
        (GateProgress(state="running", node=RunningNode("VAEDecode")), "VAEDecode"),
        (GateProgress(state="running", node=RunningNode("")), "a node"),
        (GateProgress(state="running", node=RunningNode("x" * 500), step=1.0, steps=0.0), "x" * 80),
        (GateProgress(), ""),
    ],
)
def test_a_workflows_progress_is_a_jobs_step(told: GateProgress, words: str) -> None:
    assert describe_progress(told) == words
