"""Fills a mirror: brings what an engine's builds are made of into its tree, under their digests.

For machines without internet, on one of their kind that has it: what an environment needs depends on platform and
Python. No card is needed, and nothing of what comes is run. Files appear whole, by a rename.
"""

import threading
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from urllib.parse import quote

from core.errors import LlmgwError
from core.files import ensure_directory, write_atomic
from core.http.client import HttpClient
from engines.download import Download, download, require_digest
from engines.environments import ask_for_wheel, collect_wheels
from engines.lock import pins_name
from engines.machine import Machine
from engines.packages import Packages
from engines.plan import python_reason
from engines.pypi import ProgressSink, Wheel, fetch_wheel
from engines.recipe import BuildRecipe, Recipe
from engines.release import archive_of
from engines.source_tree import ask_for, download_of, unpack_source
from engines.staging import check_space, hold_lock, publish, run_to_end, staging_folder

_LOCK_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class FilledBuild:
    """What was brought for one build."""

    name: str
    files: tuple[str, ...] = ()
    """Their paths in the tree, those that were there already included."""
    problem: str = ""
    """Why nothing was."""


async def fill_mirror(
    recipe: Recipe, tree: Path, *, packages: Packages, machine: Machine, progress: ProgressSink
) -> list[FilledBuild]:
    """Bring what each build of the recipe needs. One that cannot be had does not stop the others.

    Raises: StorageError, ConflictError.
    """
    for folder in (tree, tree / "pypi", tree / "archives"):
        ensure_directory(folder)
    filled = []
    async with hold_lock(tree / ".lock", timeout_s=_LOCK_TIMEOUT_S, what=f"work on {tree}"):
        for build in recipe.builds:
            problem = why_not(build, machine)
            if problem:
                filled.append(FilledBuild(build.name, problem=problem))
                continue
            try:
                files = await _bring(build, tree, packages, machine, progress)
                filled.append(FilledBuild(build.name, tuple(files)))
            except LlmgwError as error:
                filled.append(FilledBuild(build.name, problem=f"{error.message} [{error.code}]"))
        await run_to_end(partial(write_page, tree / "pypi"))
    return filled


def why_not(build: BuildRecipe, machine: Machine) -> str:
    """Why the build's files cannot be brought on this machine; empty when they can. Pure."""
    if build.unresolved:
        return build.unresolved
    if machine.platform not in build.platforms:
        return f"is for {' and '.join(build.platforms)}, this is {machine.platform}"
    if build.pythons and (reason := python_reason(build.pythons, machine.python)):
        return reason
    lacking = build.lacks(machine.platform)
    return f"the digest of {' and '.join(lacking)} is not known" if lacking else ""


async def _bring(
    build: BuildRecipe, tree: Path, packages: Packages, machine: Machine, progress: ProgressSink
) -> list[str]:
    check_space(tree, build.download_bytes, f"the mirror's part of {build.name}")
    files = []
    async with HttpClient() as http:
        for name, item in _archives(build, machine.platform).items():
            archive = tree / "archives" / name
            if archive.exists():
                await require_digest(archive, item)
            else:
                await download(http, item, archive, progress)
            files.append(f"archives/{name}")
    with staging_folder(tree) as staging:
        for file in await _wheels(build, tree, staging, packages, machine, progress):
            file.chmod(0o644)
            publish(file, tree / "pypi" / file.name)
            files.append(f"pypi/{file.name}")
    return files


def _archives(build: BuildRecipe, platform: str) -> dict[str, Download]:
    """The archives that it is made of. Pure."""
    if build.release is not None:
        return {name: archive_of(build.release, name) for name in build.release.files[platform]}
    return {build.source.archive: download_of(build.source)} if build.source is not None else {}


async def _wheels(
    build: BuildRecipe, tree: Path, staging: Path, packages: Packages, machine: Machine, progress: ProgressSink
) -> list[Path]:
    """The wheels that it is made of, below `staging`, and an environment's lock. The archives are in the tree."""
    if build.package is not None:
        wanted = build.package
        wheel = Wheel(wanted.name, wanted.version, tuple(wanted.sha256), wanted.download_bytes)
        return [await fetch_wheel(wheel, staging, packages=packages, progress=progress)]
    if build.python is not None:
        asked = await ask_for_wheel(build.python, staging, packages=packages, progress=progress)
    elif build.source is not None:
        into = staging / "source"
        ensure_directory(into, mode=0o700)
        await unpack_source(build.source, tree / "archives" / build.source.archive, into, progress)
        asked = ask_for(build.source, build.version, into, staging)
    else:
        return []
    asked = replace(asked, pins=pins_name(asked, build.variant, machine))
    return await collect_wheels(asked, staging, packages=packages, progress=progress)


def write_page(folder: Path, stop: threading.Event) -> None:
    """For a web server that lists no folders: a page with a link to each wheel, as pip reads it."""
    names = sorted(path.name for path in folder.glob("*.whl"))
    links = "".join(f'<a href="{quote(name)}">{escape(name)}</a><br>\n' for name in names)
    page = f"<!DOCTYPE html>\n<html><head><title>wheels</title></head><body>\n{links}</body></html>\n"
    write_atomic(folder / "index.html", page, mode=0o644)
