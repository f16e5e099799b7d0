"""Proves that a build runs here: its executable once, and once more on the cards that it is to use.

llama.cpp without its GPU plug-in serves from the processor without a word, and torch without kernels for a card fails
at the first request: both are found here, before the build can be seen by anybody.
"""

import re
import tempfile
from pathlib import Path

from core.errors import DependencyError, LlmgwError
from core.process import Completed, ProcessFailed, last_lines, run_process
from engines.machine import Machine
from engines.recipe import BuildRecipe

_RUN_TIMEOUT_S = 60.0
_PYTHON_TIMEOUT_S = 300.0
"""torch from a cold disk, on a machine that is busy."""
_SCRATCH = "{scratch}"
_GPU_TIMEOUT_S = 600.0
"""torch's first kernels on a cold disk take minutes to load."""


class BuildBroken(DependencyError):
    """A build was fetched whole, and does not run or compute here."""

    code = "engine_build_broken"


async def verify_build(recipe: BuildRecipe, tree: Path, machine: Machine) -> None:
    """Raises: BuildBroken with the reason and what mends it."""
    timeout_s = _PYTHON_TIMEOUT_S if recipe.pythons else _RUN_TIMEOUT_S
    said = await _run(recipe, tree, recipe.verify.arguments, timeout_s)
    if recipe.verify.expect not in said:
        raise BuildBroken(f"{recipe.name}: {recipe.executable} ran and did not say {recipe.verify.expect!r}")
    if machine.gpus and recipe.verify.gpu_arguments:
        said = await _run(recipe, tree, recipe.verify.gpu_arguments, _GPU_TIMEOUT_S)
        if not re.search(recipe.verify.gpu_expect, said):
            raise BuildBroken(
                f"{recipe.name} runs, and does not see the cards ({machine.gpus[0].name})",
                hint="is the driver's library for it installed (libvulkan's ICD, libcuda)? nvidia-smi must work, too",
            )


async def _run(recipe: BuildRecipe, tree: Path, arguments: list[str], timeout_s: float) -> str:
    with tempfile.TemporaryDirectory(prefix="llmgw-verify-") as scratch:
        words = [word.replace(_SCRATCH, scratch) for word in arguments]
        return await _run_words(recipe, tree, words, timeout_s)


async def _run_words(recipe: BuildRecipe, tree: Path, words: list[str], timeout_s: float) -> str:
    try:
        done: Completed = await run_process([str(tree / recipe.executable), *words], timeout_s=timeout_s, cwd=tree)
    except OSError as error:
        raise BuildBroken(f"{recipe.name} has no {recipe.executable}") from error
    except LlmgwError as error:
        raise explain_broken(recipe, error) from error
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def explain_broken(recipe: BuildRecipe, error: LlmgwError) -> BuildBroken:
    """Why an executable did not run, with what mends it. Pure."""
    output = error.output.decode("utf-8", "replace") if isinstance(error, ProcessFailed) else ""
    for library, package in recipe.verify.libraries.items():
        if f"{library}: cannot open shared object file" in output:
            return BuildBroken(f"{recipe.name} needs {library}, which is not here", hint=f"apt-get install {package}")
    status = error.exit_status if isinstance(error, ProcessFailed) else None
    if status == -4:
        return BuildBroken(f"{recipe.name} uses instructions that this processor lacks (SIGILL)")
    if "no kernel image is available" in output:
        return BuildBroken(f"{recipe.name} has no kernels for a card of this machine")
    if "Permission denied" in error.message:
        return BuildBroken(
            f"{recipe.name}: {error.message}", hint="is the file system of paths.engines mounted with noexec?"
        )
    last = last_lines(output.encode(), 1) if recipe.pythons else ""
    return BuildBroken(f"{recipe.name} does not run here: {error.message}{f' ({last})' if last else ''}")
