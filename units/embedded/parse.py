"""Unit file text to a typed `EmbeddedUnit`: the part of systemd's language that the embedded supervisor speaks.

Pure. The directives that `units/render.py` writes are understood; anything else is collected (`unknown`), and what
would have confined the process is collected apart (`unconfined`), so that the supervisor can say so. As systemd
does, a value that makes no sense is ignored and named, and the unit keeps its default. Only a unit that cannot be
run at all (no single `ExecStart=`, words that do not split) raises `UnitUnreadable`.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from core.errors import ConfigError
from units.embedded.quantities import Limit, parse_bytes, parse_limit, parse_seconds, parse_timeout
from units.model import KillMode, RestartWhen, ServiceType
from units.words import WordsUnreadable, split_words, unescape_line

T = TypeVar("T")

CREDENTIALS_SPECIFIER = "d"

_SOME_DIRECTORY = {CREDENTIALS_SPECIFIER: "/credentials"}
"""Stands for the directory while a file is only checked."""


class UnitUnreadable(ConfigError):
    """A unit file that cannot be run."""

    code = "unit_unreadable"


@dataclass(frozen=True, slots=True)
class EmbeddedUnit:
    """What the supervisor needs to know of one unit file. Times in seconds (`inf`: no limit)."""

    name: str
    exec_start: str
    """Raw text: words are split at every start, since `$X` and `%d` are known only then."""
    type: ServiceType = ServiceType.EXEC
    notify_access_all: bool = False
    environment: tuple[str, ...] = ()
    environment_files: tuple[str, ...] = ()
    credentials: tuple[tuple[str, str], ...] = ()
    user: str = ""
    group: str = ""
    supplementary_groups: tuple[str, ...] = ()
    working_directory: str = ""
    umask: int = 0o022
    no_new_privileges: bool = False
    restart: RestartWhen = RestartWhen.NO
    restart_delay_s: float = 0.1
    restart_steps: int = 0
    restart_max_delay_s: float = math.inf
    start_limit_burst: int = 5
    start_limit_interval_s: float = 10.0
    timeout_start_s: float = 90.0
    timeout_stop_s: float = 90.0
    kill_mode: KillMode = KillMode.CONTROL_GROUP
    watchdog_s: float = 0.0
    memory_max_bytes: int = -1
    """-1: no limit."""
    limit_nofile: Limit | None = None
    limit_memlock: Limit | None = None
    after: frozenset[str] = frozenset()
    wants: frozenset[str] = frozenset()
    requires: frozenset[str] = frozenset()
    binds_to: frozenset[str] = frozenset()
    part_of: frozenset[str] = frozenset()
    upholds: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()
    """Assignments that were not understood: `Name=`, or `Name=value` where only the value was not."""
    unconfined: tuple[str, ...] = ()
    """Directives that confine a process under systemd and do not here."""


_SILENT = frozenset({
    "Description", "Documentation", "SourcePath", "Slice", "DefaultDependencies", "CollectMode", "OOMPolicy",
    "OOMScoreAdjust", "StandardInput", "StandardOutput", "StandardError", "SyslogIdentifier",
    "LogRateLimitIntervalSec", "LogRateLimitBurst", "WantedBy", "RequiredBy", "UpheldBy", "StartLimitAction",
    "TasksMax", "TasksAccounting", "MemoryAccounting", "CPUAccounting", "IOAccounting",
})  # fmt: skip
"""Means nothing without systemd, and costs nothing where it is missing."""

_CONFINING = re.compile(
    r"Protect\w+|Private\w+|Restrict\w+|SystemCall\w+|Capability\w+|AmbientCapabilities|Device\w+|ReadWritePaths"
    r"|ReadOnlyPaths|InaccessiblePaths|ExecPaths|NoExecPaths|TemporaryFileSystem|Bind\w*Paths|ProcSubset|RemoveIPC"
    r"|LockPersonality|MemoryDenyWriteExecute|KeyringMode|IPAddress\w+|SocketBind\w+|SecureBits|DynamicUser"
)
_BLANKS = " \t\r"
_CONTINUED = re.compile(r"\\\r?\n")
_PREFIXES = "@-:+!"


def parse_unit(name: str, text: str) -> EmbeddedUnit:
    """Read one unit file. Raises: UnitUnreadable."""
    values = _read_assignments(text)
    fields = _Fields(values)
    rest = [key for key in values if key not in _KNOWN and key not in _SILENT]
    unconfined = tuple(sorted(key for key in rest if _CONFINING.fullmatch(key)))
    fields.unknown.extend(f"{key}=" for key in rest if key not in unconfined)
    try:
        return _build_unit(name, fields, unconfined)
    except WordsUnreadable as error:
        raise UnitUnreadable(f"{name}: {error.message}") from error


def split_command(unit: EmbeddedUnit, env: Mapping[str, str], specifiers: Mapping[str, str]) -> list[str]:
    """The command line, given the environment and what `%d` is. Raises: WordsUnreadable."""
    return split_words(unit.exec_start, env, specifiers)


def _read_assignments(text: str) -> dict[str, list[str]]:
    """Every `Key=value` outside of `[X-…]` sections; an empty value clears what stood before it."""
    values: dict[str, list[str]] = {}
    section = ""
    for raw in _CONTINUED.sub(" ", text).split("\n"):  # not splitlines: a word may hold U+2028
        line = raw.strip(_BLANKS)
        if line.startswith("["):
            section = line.strip("[]")
        elif line and line[0] not in "#;" and not section.startswith("X-"):
            key, _, value = line.partition("=")
            key, value = key.strip(_BLANKS), value.strip(_BLANKS)
            values[key] = [*values.get(key, ()), value] if value else []
    return values


@dataclass(frozen=True, slots=True)
class _Fields:
    """Turns assignments into fields and remembers what was not understood."""

    values: Mapping[str, list[str]]
    unknown: list[str] = field(default_factory=list)

    def lines(self, key: str) -> tuple[str, ...]:
        return tuple(self.values.get(key, ()))

    def words(self, key: str) -> tuple[str, ...]:
        return tuple(word for line in self.lines(key) for word in split_words(line))

    def text(self, key: str) -> str:
        lines = self.lines(key)
        return unescape_line(lines[-1]) if lines else ""

    def value(self, key: str, read: Callable[[str], T], default: T) -> T:
        """The last assignment as `read` understands it; one that it refuses is named and ignored."""
        for line in reversed(self.lines(key)):
            try:
                return read(line)
            except ValueError:
                self.unknown.append(f"{key}={line}")
        return default


_KNOWN = frozenset({
    "Type", "NotifyAccess", "ExecStart", "Environment", "EnvironmentFile", "LoadCredential", "User", "Group",
    "SupplementaryGroups", "WorkingDirectory", "UMask", "NoNewPrivileges", "Restart", "RestartSec", "RestartSteps",
    "RestartMaxDelaySec", "StartLimitBurst", "StartLimitIntervalSec", "TimeoutSec", "TimeoutStartSec",
    "TimeoutStopSec", "WatchdogSec", "KillMode", "MemoryMax", "LimitNOFILE", "LimitMEMLOCK", "After", "Wants",
    "Requires", "BindsTo", "PartOf", "Upholds",
})  # fmt: skip


def _build_unit(name: str, fields: _Fields, unconfined: tuple[str, ...]) -> EmbeddedUnit:
    both = fields.value("TimeoutSec", parse_timeout, 90.0)
    environment = fields.lines("Environment")
    for line in environment:
        split_words(line, None, _SOME_DIRECTORY)
    return EmbeddedUnit(
        name=name,
        exec_start=_read_exec_start(name, fields),
        type=fields.value("Type", _parse_type, ServiceType.EXEC),
        notify_access_all=fields.value("NotifyAccess", _parse_notify_access, "main") == "all",
        environment=environment,
        environment_files=tuple(unescape_line(line) for line in fields.lines("EnvironmentFile")),
        credentials=tuple(_read_credentials(fields)),
        user=fields.text("User"),
        group=fields.text("Group"),
        supplementary_groups=fields.words("SupplementaryGroups"),
        working_directory=fields.text("WorkingDirectory"),
        umask=fields.value("UMask", _parse_umask, 0o022),
        no_new_privileges=fields.value("NoNewPrivileges", _parse_flag, False),
        restart=fields.value("Restart", RestartWhen, RestartWhen.NO),
        restart_delay_s=fields.value("RestartSec", parse_seconds, 0.1),
        restart_steps=fields.value("RestartSteps", int, 0),
        restart_max_delay_s=fields.value("RestartMaxDelaySec", parse_seconds, math.inf),
        start_limit_burst=fields.value("StartLimitBurst", int, 5),
        start_limit_interval_s=fields.value("StartLimitIntervalSec", parse_seconds, 10.0),
        timeout_start_s=fields.value("TimeoutStartSec", parse_timeout, both),
        timeout_stop_s=fields.value("TimeoutStopSec", parse_timeout, both),
        kill_mode=fields.value("KillMode", KillMode, KillMode.CONTROL_GROUP),
        watchdog_s=fields.value("WatchdogSec", parse_seconds, 0.0),
        memory_max_bytes=fields.value("MemoryMax", parse_bytes, -1),
        limit_nofile=fields.value("LimitNOFILE", parse_limit, None),
        limit_memlock=fields.value("LimitMEMLOCK", parse_limit, None),
        after=frozenset(fields.words("After")),
        wants=frozenset(fields.words("Wants")),
        requires=frozenset(fields.words("Requires")),
        binds_to=frozenset(fields.words("BindsTo")),
        part_of=frozenset(fields.words("PartOf")),
        upholds=frozenset(fields.words("Upholds")),
        unknown=tuple(fields.unknown),
        unconfined=unconfined,
    )


def _read_exec_start(name: str, fields: _Fields) -> str:
    lines = fields.lines("ExecStart")
    if len(lines) != 1:
        raise UnitUnreadable(f"{name} has {len(lines)} commands in ExecStart=; exactly one can be run")
    command = lines[0].lstrip(_PREFIXES)
    if not split_words(command, {}, _SOME_DIRECTORY):
        raise UnitUnreadable(f"{name} has an empty command in ExecStart=")
    return command


def _read_credentials(fields: _Fields) -> list[tuple[str, str]]:
    """`id:path` pairs. An id is a plain file name, so that it cannot lead out of the credentials directory."""
    pairs = []
    for line in fields.lines("LoadCredential"):
        identifier, _, path = unescape_line(line).partition(":")
        if not path.startswith("/") or "/" in identifier or identifier in ("", ".", "..") or len(identifier) > 200:
            fields.unknown.append(f"LoadCredential={line}")
        else:
            pairs.append((identifier, path))
    return pairs


def _parse_type(text: str) -> ServiceType:
    """`simple` differs from `exec` only in how early it calls a unit started."""
    return ServiceType.EXEC if text == "simple" else ServiceType(text)


def _parse_notify_access(text: str) -> str:
    if text not in ("main", "all"):
        raise ValueError(text)
    return text


def _parse_umask(text: str) -> int:
    return int(text, 8)


def _parse_flag(text: str) -> bool:
    """systemd's booleans."""
    values = dict.fromkeys(("1", "yes", "y", "true", "t", "on"), True)
    values |= dict.fromkeys(("0", "no", "n", "false", "f", "off"), False)
    if text.lower() not in values:
        raise ValueError(text)
    return values[text.lower()]
