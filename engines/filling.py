"""Fills a mirror: brings what an engine's builds are made of into its tree, under their digests.

For machines without internet, on one of their kind that has it: what an environment needs depends on platform and
Python. No card is needed, and nothing of what comes is run. Files appear whole, by a rename.
"""

import threading
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from urllib.parse import quote

from core.errors import LlmgwError
from core.files import ensure_directory, write_atomic
from core.http.client import HttpClient
from engines.download import download
from engines.environments import collect_wheels
from engines.machine import Machine, parse_version
from engines.packages import Packages
from engines.pypi import ProgressSink, Wheel, fetch_wheel
from engines.recipe import BuildRecipe, Environment, Recipe
from engines.release import archive_of
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
                files = await _bring(build, tree, packages, machine.platform, progress)
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
    env = build.python
    if env and not parse_version(env.python_min) <= machine.python <= parse_version(env.python_max):
        return f"needs Python {env.python_min} to {env.python_max}, this has {'.'.join(map(str, machine.python))}"
    lacking = build.release.lacks(machine.platform) if build.release else []
    return f"the digest of {' and '.join(lacking)} is not known" if lacking else ""


async def _bring(
    build: BuildRecipe, tree: Path, packages: Packages, platform: str, progress: ProgressSink
) -> list[str]:
    source = build.package or build.python or build.release
    check_space(tree, source.download_bytes if source else 0, f"the mirror's part of {build.name}")
    if build.release is not None:
        files = []
        async with HttpClient() as http:
            for name in build.release.files[platform]:
                if not (tree / "archives" / name).exists():
                    await download(http, archive_of(build.release, name), tree / "archives" / name, progress)
                files.append(f"archives/{name}")
        return files
    with staging_folder(tree) as staging:
        wheels = await _wheels(build, staging, packages, progress)
        for wheel in wheels:
            wheel.chmod(0o644)
            publish(wheel, tree / "pypi" / wheel.name)
        return [f"pypi/{wheel.name}" for wheel in wheels]


async def _wheels(build: BuildRecipe, staging: Path, packages: Packages, progress: ProgressSink) -> list[Path]:
    wanted = build.package or build.python
    if isinstance(wanted, Environment):
        return await collect_wheels(wanted, staging, packages=packages, progress=progress)
    if wanted is None:
        return []
    wheel = Wheel(wanted.name, wanted.version, tuple(wanted.sha256), wanted.download_bytes)
    return [await fetch_wheel(wheel, staging, packages=packages, progress=progress)]


def write_page(folder: Path, stop: threading.Event) -> None:
    """For a web server that lists no folders: a page with a link to each wheel, as pip reads it."""
    names = sorted(path.name for path in folder.glob("*.whl"))
    links = "".join(f'<a href="{quote(name)}">{escape(name)}</a><br>\n' for name in names)
    page = f"<!DOCTYPE html>\n<html><head><title>wheels</title></head><body>\n{links}</body></html>\n"
    write_atomic(folder / "index.html", page, mode=0o644)
