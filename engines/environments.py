"""Makes a Python environment for an engine: one pinned wheel and what it needs, or what a source tree asks for, as the
index stood on a day.

pip resolves once and reports (versions and digests of every file), the report becomes a lock file, and only what the
lock names is installed, by digest. The lock stays in the build (`requirements.lock`). pip's cache beside the builds
keeps whole files, so an installation that was interrupted goes on where it was; it goes when the build is there.

The environment is made in a staging folder and moved: scripts' first lines are made to fit the final place.
"""

import asyncio
import contextlib
import os
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from core.api import Progress
from core.errors import LlmgwError
from core.files import ensure_directory, write_atomic
from core.http.client import HttpClient
from core.process import run_process
from engines.dated_index import PYPI, dated_index
from engines.lock import Asked, build_lock, pins_of, read_constraints, require_pinned
from engines.packages import Packages
from engines.pip_search import PipSearch, find_reason
from engines.pypi import (
    PIP_MANNERS,
    ProgressSink,
    Wheel,
    WheelMissing,
    explain_failure,
    fetch_wheel,
    find_pip,
    pip_environment,
    pip_words,
    size_of,
)
from engines.recipe import Environment
from engines.staging import run_to_end

LOCK = "requirements.lock"
_STEP_TIMEOUT_S = 6 * 3600.0
_CONFIG_TIMEOUT_S = 60.0
_ANSWER_S = 20.0
_REPORT_EVERY_S = 1.0


async def ask_for_wheel(recipe: Environment, staging: Path, *, packages: Packages, progress: ProgressSink) -> Asked:
    """What the environment of a wheel is made of; the wheel lies in `staging` then.

    Raises: WheelMissing, WheelMismatch, StorageError, ConfigError.
    """
    wheel = Wheel(recipe.name, recipe.version, tuple(recipe.sha256))
    return Asked(
        recipe.name,
        recipe.version,
        await fetch_wheel(wheel, staging, packages=packages, progress=progress),
        date=recipe.date,
        sha256=tuple(recipe.sha256),
        leave_out=tuple(recipe.leave_out),
        stands_for=recipe.stands_for,
    )


async def make_environment(
    asked: Asked, tree: Path, final: Path, staging: Path, *, packages: Packages, progress: ProgressSink
) -> None:
    """Fill `tree` (which will be renamed to `final`, and may have the engine's source in it).

    Raises: WheelMissing, WheelMismatch, StorageError, LockInvalid, ConfigError.
    """
    sources = [entry for entry in tree.iterdir() if entry.is_dir()]
    asked = await _reachable(asked, packages)
    await _make_tree(tree)
    async with _as_it_stood(packages, asked, staging) as dated:
        pip = _Pip(asked, tree, staging, final.parent / ".pip-cache", dated, progress)
        lock = await _resolve(pip, asked, staging)
        await pip.install("install", "--no-deps", "--no-compile", *_locked(staging))
    if asked.stands_for:
        await run_to_end(partial(_stand_for, tree, asked))
    progress(Progress(step="compile", detail=str(asked)))
    # The engine's user cannot write into the build, so what is not compiled now is compiled at every start.
    compiled = [str(tree / "bin/python"), "-m", "compileall", "-q", "-j", "0", "-s", str(tree), "-p", str(final)]
    places = [str(place) for place in (tree / "lib", *sources)]
    await run_process([*compiled, *places], timeout_s=_STEP_TIMEOUT_S, check=False)
    await run_to_end(partial(_finish, tree, final))
    write_atomic(tree / LOCK, lock)


async def collect_wheels(asked: Asked, staging: Path, *, packages: Packages, progress: ProgressSink) -> list[Path]:
    """Fetch all that an environment is resolved from, as files below `staging`; what it leaves out, and its lock, too.

    Raises: WheelMissing, WheelMismatch, StorageError, LockInvalid, ConfigError.
    """
    tree, into = staging / "tree", staging / "all"
    asked = await _reachable(asked, packages)
    await _make_tree(tree)
    async with _as_it_stood(packages, asked, staging) as dated:
        pip = _Pip(asked, tree, staging, staging / "cache", dated, progress)
        lock = await _resolve(pip, replace(asked, leave_out=()), staging)
        await pip.run("download", "download", "--no-deps", *_locked(staging), "--dest", str(into))
    pins = staging / asked.pins
    write_atomic(pins, pins_of(lock, asked))
    return [*sorted(into.glob("*.whl")), pins]  # the lock last: what it names is there before it


async def _reachable(asked: Asked, packages: Packages) -> Asked:
    """Without its second index where a mirror stands for all, or where nobody answers for it: pip would wait for that
    once for each of a hundred packages, and its own configuration may know another place."""
    if not asked.index:
        return asked
    if packages.is_given:
        return replace(asked, index="")
    async with HttpClient() as http:
        try:
            await http.fetch("HEAD", asked.index, timeout_s=_ANSWER_S)
        except LlmgwError:
            return replace(asked, index="")
    return asked


async def _make_tree(tree: Path) -> None:
    await run_process([sys.executable, "-I", "-m", "venv", "--without-pip", str(tree)], timeout_s=120.0)


async def _resolve(pip: "_Pip", asked: Asked, staging: Path) -> str:
    """The lock, which lies in `staging`, too. Raises: as `make_environment`."""
    report, constraints = staging / "report.json", staging / "constraints.txt"
    pins = await _read_pins(pip.packages, asked)
    write_atomic(constraints, read_constraints(pins, asked))
    narrowed = ("--constraint", str(constraints)) if pins else ()
    await pip.install("resolve", "--dry-run", "--report", str(report), *narrowed, *asked.arguments)
    lock = build_lock(report.read_bytes(), asked)
    if pins:
        require_pinned(lock, pins, asked)
    write_atomic(staging / LOCK, lock)
    return lock


async def _read_pins(packages: Packages, asked: Asked) -> str:
    """The lock beside the wheels of a folder; empty where there is none. Raises: WheelMissing, StorageError."""
    if not asked.pins or not (packages.folder or packages.page):
        return ""
    if packages.folder is not None:
        path = packages.folder / asked.pins
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise WheelMissing(f"{path} cannot be read: {error}") from error
    async with HttpClient() as http:
        try:
            reply = await http.fetch("GET", f"{packages.page}{asked.pins}", timeout_s=_ANSWER_S)
        except LlmgwError as error:
            raise WheelMissing(error.message) from error
    if reply.status not in (200, 403, 404, 410):
        raise WheelMissing(f"{packages.page}{asked.pins} answers {reply.status}")
    return reply.body.decode("utf-8", "replace") if reply.status == 200 else ""


def _locked(staging: Path) -> tuple[str, ...]:
    return ("--require-hashes", "--requirement", str(staging / LOCK))


class _Pip:
    """pip for one environment."""

    def __init__(
        self, asked: Asked, tree: Path, staging: Path, cache: Path, packages: Packages, progress: ProgressSink
    ) -> None:
        self._asked = asked
        self._staging = staging
        self._tree = tree
        self._cache = cache
        self.packages = packages
        self._progress = progress
        self._second = ("--extra-index-url", asked.index) if asked.index else ()

    async def install(self, step: str, *arguments: str) -> None:
        """`pip install`; it comes from our own folder, so it sees our packages, too, and is to ignore them.

        Raises: WheelMissing, WheelMismatch, StorageError.
        """
        await self.run(step, "install", "--ignore-installed", "--no-warn-script-location", *arguments)

    async def run(self, step: str, command: str, *arguments: str) -> None:
        """One command of pip's. Raises: WheelMissing, WheelMismatch, StorageError."""
        environment, source = pip_environment(self._staging, packages=self.packages, environ=os.environ)
        environment["PIP_CACHE_DIR"] = str(self._cache)
        ensure_directory(self._cache, mode=0o700)
        words = pip_words(find_pip(), str(self._tree / "bin/python"))
        argv = (
            *(*words, command, "--only-binary", ":all:"),
            *(*PIP_MANNERS, *source, *self._second, *arguments),
        )
        async with _reporting(step, self._asked, (self._tree, self._cache), self._progress):
            done = await run_process(
                argv, timeout_s=_STEP_TIMEOUT_S, env=environment, cwd=self._staging, check=False, limit_bytes=64 << 20
            )
        if done.code != 0:
            output = done.stderr + done.stdout
            search = PipSearch(words, (*source, *self._second), environment, self._staging)
            reason = await find_reason(output, search, self.packages.setting)
            raise explain_failure(self._asked, output, self._staging, self.packages, reason)


@contextlib.asynccontextmanager
async def _as_it_stood(packages: Packages, asked: Asked, staging: Path) -> AsyncIterator[Packages]:
    """What pip is told: a folder as it is, an index as it stood on the day."""
    if packages.folder is not None or packages.page or not asked.date:
        yield packages
        return
    async with dated_index(packages.index or await _pips_index(staging) or PYPI, asked.date) as address:
        yield replace(packages, index=address, shown=str(packages), keeps_pips=not packages.is_given)


async def _pips_index(staging: Path) -> str:
    """The index that pip would ask by its own configuration; empty: it has none."""
    environment, _ = pip_environment(staging, packages=Packages(), environ=os.environ)
    argv = (*pip_words(find_pip()), "config", "list")
    done = await run_process(argv, timeout_s=_CONFIG_TIMEOUT_S, env=environment, cwd=staging, check=False)
    return parse_index(done.stdout.decode("utf-8", "replace")) if done.code == 0 else ""


def parse_index(listed: str) -> str:
    """The index in what `pip config list` prints; empty: none. As in pip, the environment goes first. Pure."""
    settings = dict(line.partition("=")[::2] for line in listed.splitlines())
    keys = (":env:.index-url", "install.index-url", "global.index-url")
    return next((settings[key].strip("'\"") for key in keys if key in settings), "")


@contextlib.asynccontextmanager
async def _reporting(step: str, asked: Asked, places: Sequence[Path], progress: ProgressSink) -> AsyncIterator[None]:
    """Tell how much has come while the block runs."""

    async def report() -> None:
        while True:
            done = sum(size_of(place) for place in places)
            progress(Progress(step=step, detail=str(asked), done_bytes=done))
            await asyncio.sleep(_REPORT_EVERY_S)

    reporter = asyncio.create_task(report())
    try:
        yield
    finally:
        reporter.cancel()
        await asyncio.wait({reporter})


def _stand_for(tree: Path, asked: Asked, stop: threading.Event) -> None:
    """Let `importlib.metadata` find the program under its own name: vLLM tells its platform by that version."""
    wheel = asked.name.replace("-", "_")
    (own,) = tree.glob(f"lib/python3.*/site-packages/{wheel}-{asked.version}.dist-info")
    name, _, version = asked.stands_for.partition("==")
    folder = own.with_name(f"{name}-{version}.dist-info")
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "INSTALLER").write_text("llmgw\n")
    (folder / "RECORD").touch()
    if (own / "entry_points.txt").exists():
        shutil.copy(own / "entry_points.txt", folder / "entry_points.txt")


def _finish(tree: Path, final: Path, stop: threading.Event) -> None:
    """Scripts name the final place, everybody may read, and all of it is on the disk."""
    before, after = os.fsencode(tree), os.fsencode(final)
    for script in (tree / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            data = script.read_bytes()
            if before in data and b"\0" not in data:  # in a program, a path of another length would break it
                script.write_bytes(data.replace(before, after))
    config = tree / "pyvenv.cfg"
    config.write_bytes(config.read_bytes().replace(before, after))
    for folder, folders, files in os.walk(tree):
        if stop.is_set():
            return
        for name in (*folders, *files):
            path = Path(folder, name)
            if not path.is_symlink():
                mode = path.stat().st_mode
                path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))
    os.sync()
