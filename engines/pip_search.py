"""Why pip found nothing: the index does not know the package, does not let us in, or has it for other machines alone.

`pip download` says the same sentence of all of these. So when it has said it, the package is searched once more with
`pip index versions -vv`, which downloads nothing and tells of every page and of every file why it is none for us.
What its words mean is pure, and tested on what pip 23.0.1 and 26.3 print.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from core.errors import LlmgwError
from core.process import run_process
from engines.lock import folded

_TIMEOUT_S = 60.0
_LIMIT_BYTES = 8 << 20
_SHOWN = 4

_MISSING = re.compile(r"No matching distribution found for ([A-Za-z0-9._-]+)(?:\[[^\]]*\])?(?:==([^\s;,]+))?")
_STATUS = re.compile(r"Could not fetch URL \S+ (\d{3}) (?:Client|Server) Error")
_TOO_MANY = re.compile(r"too many (\d{3}) error responses")
_TAGS = re.compile(r"Skipping link: none of the wheel's tags \([^)]*\) are compatible[^:]*: (\S+)")
_PYTHON = re.compile(r"Link requires a different Python \(([\d.]+) not in: '([^']*)'\): (\S+)")
_SOURCE = re.compile(r"Skipping link: No sources permitted for \S+: (\S+)")
_FOUND = re.compile(r"Found link (\S+)")


@dataclass(frozen=True, slots=True)
class Missing:
    """What pip looked for in vain; without a version any would have done."""

    name: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".rstrip()


@dataclass(frozen=True, slots=True)
class PipSearch:
    """How pip was called when it found nothing."""

    words: Sequence[str]
    """The first of the command."""
    source: Sequence[str]
    """Where packages come from."""
    environment: Mapping[str, str]
    into: Path


@dataclass(frozen=True, slots=True)
class Seen:
    """What the search saw. Files as (version, what they are for)."""

    statuses: frozenset[int] = frozenset()
    """Of the pages that could not be had."""
    unfit: Sequence[tuple[str, str]] = field(default_factory=list)
    """Wheels for other machines, by their tags."""
    pythons: Sequence[tuple[str, str]] = field(default_factory=list)
    """Wheels for other versions of Python, by what they want."""
    sources: Sequence[str] = field(default_factory=list)
    """Versions that are there as source."""
    fitting: Sequence[str] = field(default_factory=list)
    """Versions that are there for this machine."""
    python: str = ""
    """The version of pip's Python, where that mattered."""


@dataclass(frozen=True, slots=True)
class Reason:
    """What to say: goes on after the name of the place; and what to do."""

    what: str
    hint: str
    is_unfit: bool = False
    """The package is there, and not for this machine."""


def read_missing(output: str) -> Missing | None:
    """What pip's last words say that it did not find."""
    found = _MISSING.search(output)
    return Missing(found[1], found[2] or "") if found else None


def search_words(call: PipSearch, name: str) -> tuple[str, ...]:
    """The command that tells why."""
    manners = ("--no-input", "--disable-pip-version-check", "--retries", "1")
    return (*call.words, "index", "versions", "-vv", "--pre", "--only-binary", ":all:", *manners, *call.source, name)


async def find_reason(output: bytes, call: PipSearch, setting: str) -> Reason | None:
    """Search once more for what pip did not find by its output; None where it found all, or the search does not tell.

    Never an error: one is told already. `setting` is what names the place in the config.
    """
    missing = read_missing(output.decode("utf-8", "replace"))
    if missing is None:
        return None
    argv = search_words(call, missing.name)
    try:
        done = await run_process(
            argv, timeout_s=_TIMEOUT_S, env=dict(call.environment), cwd=call.into, check=False, limit_bytes=_LIMIT_BYTES
        )
    except LlmgwError:
        return None
    said = (done.stdout + done.stderr).decode("utf-8", "replace")
    return judge_search(missing, read_search(said, missing.name), setting=setting)


def read_search(text: str, name: str) -> Seen:
    """What of it is of the package."""
    pythons: list[tuple[str, str]] = []
    unfit: list[tuple[str, str]] = []
    sources: list[str] = []
    fitting: list[str] = []
    python = ""
    for address in _TAGS.findall(text):
        if wheel := _wheel(address, name):
            unfit.append(wheel)
    for here, wants, address in _PYTHON.findall(text):
        if wheel := _wheel(address, name):
            python = here
            pythons.append((wheel[0], wants))
    for address in _SOURCE.findall(text):
        sources.append(_source_version(address, name))
    for address in _FOUND.findall(text):
        wheel = _wheel(address, name)
        (fitting if wheel else sources).append(wheel[0] if wheel else _source_version(address, name))
    statuses = frozenset(map(int, [*_STATUS.findall(text), *_TOO_MANY.findall(text)]))
    return Seen(statuses, unfit, pythons, list(filter(None, sources)), fitting, python)


def judge_search(missing: Missing, seen: Seen, *, setting: str) -> Reason | None:
    """Why there is none; None where the search does not tell. `setting` is what names the place in the config."""
    wanted = missing.version
    if _of(wanted, seen.fitting):
        return None  # it is there, and something else was wrong with it: its digest, or what others want of it
    if tags := [what for version, what in seen.unfit if _is(wanted, version)]:
        what = f"has {missing} for other machines alone: {_listed(tags)}"
        return Reason(what, "another version or variant may fit: llmgw engine plan ENGINE", is_unfit=True)
    if pythons := [what for version, what in seen.pythons if _is(wanted, version)]:
        what = f"has {missing} for Python {_listed(pythons)} alone, and this is {seen.python}"
        return Reason(what, "another version or variant may fit: llmgw engine plan ENGINE", is_unfit=True)
    if _of(wanted, seen.sources):
        return Reason(f"has {missing} as source alone, and nothing is built here", f"put a wheel of it into {setting}")
    if others := [*seen.fitting, *(version for version, _ in (*seen.unfit, *seen.pythons)), *seen.sources]:
        hint = f"it may be older than llmgw: bring it up to date, or set {setting} to a place that has the package"
        return Reason(f"has no {missing}, but {_listed(others)}", hint)
    return _closed(missing, seen.statuses, setting)


def _closed(missing: Missing, statuses: frozenset[int], setting: str) -> Reason | None:
    """The package has no files for us to see."""
    shown = _listed([str(status) for status in sorted(statuses - {404})])
    if statuses & {401, 403, 407}:
        hint = f"it wants a user and a password, in {setting} or in pip's configuration"
        return Reason(f"refuses to say whether it has {missing} ({shown})", hint)
    if any(status >= 500 or status == 429 for status in statuses):
        return Reason(f"answers {shown} when it is asked for {missing.name}", "try again later")
    if 404 in statuses:
        hint = f"is its address that of an index (…/simple)? A package that it lacks: put it there, or set {setting}"
        return Reason(f"knows no package {missing.name} (404)", hint)
    return None


def _of(wanted: str, versions: Sequence[str]) -> bool:
    return any(_is(wanted, version) for version in versions)


def _is(wanted: str, version: str) -> bool:
    return not wanted or folded(wanted) == folded(version)


def _wheel(address: str, name: str) -> tuple[str, str] | None:
    """Version and tags of a wheel of the package; None: it is none."""
    words = _file_name(address).removesuffix(".whl").split("-")
    is_wheel = _file_name(address).endswith(".whl") and len(words) >= 5 and folded(words[0]) == folded(name)
    return (words[1], "-".join(words[-3:])) if is_wheel else None


def _source_version(address: str, name: str) -> str:
    """Of a source archive of the package; empty: it is none."""
    stem = re.sub(r"\.(tar\.\w+|zip|tgz)$", "", _file_name(address))
    head, _, version = stem.rpartition("-")
    return version if folded(head) == folded(name) else ""


def _file_name(address: str) -> str:
    return unquote(address.partition("#")[0].rpartition("/")[2])


def _listed(words: Sequence[str]) -> str:
    """Each once, and not too many."""
    known = list(dict.fromkeys(words))
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return f"{', '.join(known[:_SHOWN])}{more}"
