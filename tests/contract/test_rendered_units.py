"""What systemd's own tools say of rendered units: nothing at all, and that the sandbox is tight. None need run."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.units.samples import GPU, PLAIN
from units.model import RestartPolicy, Sandbox, UnitRecord
from units.names import engine_unit_name
from units.render import render_unit

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="apt-get install systemd")

GATE = replace(PLAIN, binds_to=(PLAIN.name,), after=(PLAIN.name,), name="llmgw-gate-qwen.service", sandbox=Sandbox())
VARIANTS = {
    "plain": PLAIN,
    "gpu": GPU,
    "gate": GATE,
    "bare": replace(PLAIN, sandbox=None),
    "no limits": replace(PLAIN, restart=RestartPolicy(limit_burst=0, limit_interval_s=0), lock_memory=False),
    "odd id": replace(PLAIN, name=engine_unit_name("a/b:c d%n_5f"), record=UnitRecord("a/b:c d%n_5f")),
    "long id": replace(PLAIN, name=engine_unit_name("m/" * 300), record=UnitRecord("m/" * 300)),
}
MAX_SCORE = {"plain": 1.4, "gpu": 1.6, "gate": 1.4}
"""systemd-analyze security's score; lower is better. Never raise one without saying in the commit what it buys."""


@pytest.mark.parametrize("name", VARIANTS)
def test_systemd_has_nothing_to_say_about_a_rendered_unit(name: str, tmp_path: Path) -> None:
    for unit in {VARIANTS[name].name: VARIANTS[name], PLAIN.name: PLAIN}.values():
        (tmp_path / unit.name).write_text(render_unit(unit))
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / VARIANTS[name].name)], capture_output=True, text=True
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.mark.parametrize("name", MAX_SCORE)
def test_the_sandbox_stays_as_tight_as_it_is(name: str, tmp_path: Path) -> None:
    path = tmp_path / VARIANTS[name].name
    path.write_text(render_unit(VARIANTS[name]))
    found = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)], capture_output=True, text=True
    )
    score = re.search(r"exposure level for .*: ([0-9.]+)", found.stdout)
    assert score is not None, found.stdout
    print(f"systemd-analyze security, {name}: {score[1]}")
    assert float(score[1]) <= MAX_SCORE[name], found.stdout
