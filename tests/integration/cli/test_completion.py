"""The completion that the package brings, in bash itself."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from engines.recipe import load_recipe

ROOT = Path(__file__).resolve().parents[3]


def complete(folder: Path, *words: str) -> list[str]:
    """What bash would offer for the last word."""
    program = folder / "llmgw"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cli "$@"\n')
    program.chmod(0o755)
    script = (
        f". {ROOT}/packaging/completions/llmgw\n"
        f"COMP_WORDS=({shlex.join(['llmgw', *words])}); COMP_CWORD={len(words)}\n"
        f"_llmgw_completion {shlex.quote(str(program))}\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    environ = {**os.environ, "LLMGW_STATE": str(folder / "state"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, env=environ, capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.split()


def test_bash_offers_versions_and_variants(tmp_path: Path) -> None:
    builds = load_recipe("llamacpp").builds
    version = builds[0].version
    assert complete(tmp_path, "engine", "install", "llama") == ["llamacpp"]
    assert version in complete(tmp_path, "engine", "install", "llamacpp", "--version", "")
    offered = complete(tmp_path, "engine", "install", "llamacpp", "--version", version, "--variant", "")
    assert offered == list(dict.fromkeys(build.variant for build in builds if build.version == version))
