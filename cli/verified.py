"""How what `llmgw weights verify` found is told: each file that is not sound with both digests, and what mends it."""

import shlex

from cli.output import say
from core.weights import SOUND, FileState, VerifiedFile, VerifiedWeights


def show_verified(found: VerifiedWeights, model: str) -> None:
    """`model`: what was asked for, so that the command that mends it asks for the same."""
    for line in describe(found, model):
        say(line)


def describe(found: VerifiedWeights, model: str) -> list[str]:
    """The lines. Pure."""
    lines = [line for file in found.files if file.state is not FileState.WHOLE for line in _describe(file, model)]
    for runtime in found.restart:
        lines.append(f"{runtime} still runs with the file as it was: llmgw runtime-restart {shlex.quote(runtime)}")
    counts = {state: sum(file.state is state for file in found.files) for state in FileState}
    broken = sum(count for state, count in counts.items() if state not in SOUND)
    parts = [f"{counts[FileState.WHOLE]} of {len(found.files)} files are what was fetched"]
    parts += [f"{count} {words}" for count, words in (
        (counts[FileState.MENDED], "mended"), (counts[FileState.NO_DIGEST], "without a digest"), (broken, "broken")
    ) if count]  # fmt: skip
    return [*lines, "; ".join(parts) + "."]


def _describe(file: VerifiedFile, model: str) -> list[str]:
    before = "before: " if file.state is FileState.MENDED else ""
    lines = [f"{file.state:10} {file.path}: {before}{file.problem}"]
    if file.state not in SOUND:
        # What failed says itself what helps; else the same again, and this time for good.
        asked = " ".join(["llmgw weights verify", *([shlex.quote(model)] if model else []), "--apply"])
        lines.append(f"{'':10} {file.remedy or asked}")
    return lines
