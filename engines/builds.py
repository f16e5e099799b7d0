"""The builds on this machine: what is there, which one is used, and how one goes.

`<engines>/<engine>/<build>/` holds a build and its `build.json`; a build that is there is whole, since it appears by
one rename. `<engines>/<engine>/.active.json` says which one is used where a runtime names none, and which one before
it: that is what `rollback` goes back to. Without the file it is the best of those that are there.

An operator's own executable needs no installation: a `build` that is an absolute path is used as it is. Nor does a
program that the distribution brings (podman).
"""

import os
import shutil
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import msgspec

from core.config.schema import OwnBuild, OwnProgram, OwnTree
from core.errors import ConflictError, NotFoundError
from core.files import write_atomic
from engines.adapter import Build
from engines.checked import BuildFailedCheck, failure_of, is_stale, read_check
from engines.recipe import load_recipe
from engines.staging import hold_lock, park

MANIFEST = "build.json"
_ACTIVE = ".active.json"
_LOCK_TIMEOUT_S = 3600.0
_OF_THE_SYSTEM = {"container": ("podman", "apt-get install podman crun")}
"""Engine -> its program, which the distribution brings, and how."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`build.json`: what the folder holds and where it came from."""

    engine: str
    name: str
    version: str
    variant: str = ""
    executable: str
    """Relative to the build's folder."""
    folder: str = ""
    """Likewise, of the engine's own source tree, where it has one."""
    source: str
    sha256: list[str]
    environment: dict[str, str] = {}
    takes_uuids: bool = True
    size_bytes: int = 0


class Active(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`.active.json`."""

    active: str = ""
    previous: str = ""


class BuildUnknown(NotFoundError):
    """No build of that name is installed."""

    code = "engine_build_unknown"


class BuildInUse(ConflictError):
    """A runtime runs on it, or would with the next start."""

    code = "engine_build_in_use"


def find_build(engine: str, wanted: str, engines_dir: Path) -> Build | None:
    """The installed build of this name, or the one in use when `wanted` is empty; None when there is none.

    A build that failed its check is not taken. `wanted` may be the absolute path of an executable.
    Raises: NotFoundError when nothing runnable is at that path, BuildFailedCheck for a build that is asked for by name.
    """
    if wanted.startswith("/"):
        return _own_build(engine, Path(wanted))
    if engine in _OF_THE_SYSTEM and not wanted:
        program = shutil.which(_OF_THE_SYSTEM[engine][0])
        return Build(engine, Path(program).name, "system", Path(program)) if program else None
    folder = engines_dir / engine
    if wanted:
        return _require_passed(read_named(engine, wanted, engines_dir), folder)
    installed = {build.name: build for build in list_builds(engine, engines_dir) if not _failure(build, folder)}
    for name in (read_active(folder).active, *_recipe_order(engine)):
        if name in installed:
            return installed[name]
    return next(iter(installed.values()), None)


def own_build(engine: str, own: OwnBuild) -> Build:
    """The build that an operator named in `engines.NAME`. Raises: NotFoundError when it is not there."""
    if not isinstance(own, OwnTree):
        return _own_build(engine, Path(own.bin if isinstance(own, OwnProgram) else own.python))
    folder = Path(own.dir)
    if not own.dir or not own.python or not (folder / "main.py").is_file():
        raise NotFoundError(
            f"engines.{engine} names no whole build: {folder / 'main.py' if own.dir else 'dir'} is missing"
            if own.python
            else f"engines.{engine} names no python",
            hint=f"engines.{engine}.dir is its source tree, .python that of the environment with its requirements",
            code="engine_build_missing",
        )
    return replace(_own_build(engine, Path(own.python)), folder=folder)


def read_named(engine: str, name: str, engines_dir: Path) -> Build | None:
    """The installed build of this name, whatever a check said of it."""
    safe = "/" not in name and not name.startswith(".") and "\0" not in name
    return read_build(engines_dir / engine / name) if safe else None


def _require_passed(build: Build | None, folder: Path) -> Build | None:
    failure = _failure(build, folder) if build is not None else ""
    if build is not None and failure:
        raise BuildFailedCheck(
            f"{build.name} of {build.engine} failed its check ({failure})",
            hint=f"llmgw engine-check {build.engine} --build {build.name} looks again; an empty build takes another",
        )
    return build


def _failure(build: Build, folder: Path) -> str:
    return failure_of(read_check(folder / build.name), build.version)


def how_to_install(engine: str) -> str:
    """The command that brings a build of the engine."""
    return _OF_THE_SYSTEM[engine][1] if engine in _OF_THE_SYSTEM else f"llmgw engine install {engine}"


def list_builds(engine: str, engines_dir: Path) -> list[Build]:
    """Every whole build of the engine, newest first."""
    try:
        folders = [entry for entry in (engines_dir / engine).iterdir() if not entry.name.startswith(".")]
        folders.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    except OSError:
        return []
    builds = (read_build(folder) for folder in folders)
    return [build for build in builds if build is not None]


def list_engines(engines_dir: Path) -> list[str]:
    """Engines of which something is there, sorted."""
    try:
        return sorted(e.name for e in engines_dir.iterdir() if e.is_dir() and not e.name.startswith("."))
    except OSError:
        return []


def read_manifest(folder: Path) -> Manifest | None:
    """What the folder holds; None when it holds no build."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, ValueError):
        return None


def read_build(folder: Path) -> Build | None:
    """The build in this folder; None when the folder holds no whole one."""
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    executable = folder / manifest.executable
    if manifest.name != folder.name or not os.access(executable, os.X_OK):
        return None
    check = read_check(folder)
    tried = check.takes_uuids if check is not None and not is_stale(check, manifest.version) else None
    return Build(
        manifest.engine,
        manifest.name,
        manifest.version,
        executable,
        tuple(manifest.environment.items()),
        folder=folder / manifest.folder if manifest.folder else None,
        takes_uuids=manifest.takes_uuids if tried is None else tried,
    )


def read_active(folder: Path) -> Active:
    """Which build of the engine is used, and which was before it."""
    try:
        return msgspec.json.decode((folder / _ACTIVE).read_bytes(), type=Active)
    except (OSError, ValueError):
        return Active()


def activate(folder: Path, name: str) -> None:
    """Use this build from now on, where a runtime names none. Call under the engine's lock. Raises: StorageError."""
    before = read_active(folder)
    if before.active != name:
        after = Active(active=name, previous=before.active or before.previous)
        write_atomic(folder / _ACTIVE, msgspec.json.encode(after))


async def roll_back(engine: str, engines_dir: Path) -> Build:
    """Use the build again that was used before this one. Doing it twice changes nothing.

    Raises: BuildUnknown when there was none, or it was removed.
    """
    folder = engines_dir / engine
    async with _locked(engine, folder):
        state = read_active(folder)
        previous = read_build(folder / state.previous) if state.previous else None
        if previous is None:
            raise BuildUnknown(
                f"{engine} has no previous build to go back to",
                hint=f"llmgw engine install {engine} --version VERSION uses another one",
            )
        activate(folder, previous.name)
        return previous


async def remove_build(engine: str, name: str, engines_dir: Path, in_use: Collection[str]) -> None:
    """Take a build away. `in_use`: builds that runtimes run on. Raises: BuildUnknown, BuildInUse."""
    folder = engines_dir / engine
    if "/" in name or name.startswith(".") or "\0" in name or read_manifest(folder / name) is None:
        raise BuildUnknown(f"there is no build {name[:100]!r} of {engine}", hint="llmgw engine list")
    async with _locked(engine, folder):
        if name in in_use:
            raise BuildInUse(f"a runtime runs on {engine} {name}", hint="stop it first: llmgw runtimes")
        _discard(folder, name)


def prunable_builds(engine: str, engines_dir: Path, in_use: Collection[str]) -> list[str]:
    """Every build but the one in use, the one before it, and those that runtimes run on or name."""
    current = find_build(engine, "", engines_dir)
    kept = {*in_use, read_active(engines_dir / engine).previous, current.name if current else ""}
    return sorted(build.name for build in list_builds(engine, engines_dir) if build.name not in kept)


async def prune_builds(engine: str, engines_dir: Path, in_use: Collection[str]) -> list[str]:
    """Take those away. Returns their names."""
    folder = engines_dir / engine
    async with _locked(engine, folder):
        names = prunable_builds(engine, engines_dir, in_use)
        for name in names:
            _discard(folder, name)
        return names


def _discard(folder: Path, name: str) -> None:
    """At once for whoever looks, then from the disk; what a kill leaves of it the next installation clears away."""
    shutil.rmtree(park(folder / name), ignore_errors=True)


def _locked(engine: str, folder: Path) -> AbstractAsyncContextManager[None]:
    if not folder.is_dir():
        raise BuildUnknown(f"no build of {engine} is installed", hint=f"llmgw engine install {engine}")
    return hold_lock(folder / ".lock", timeout_s=_LOCK_TIMEOUT_S, what=f"an installation of {engine}")


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
