"""Wire messages of engine builds.

GET  /v1/engines                    -> EngineList
POST /v1/engines/{engine}/install   InstallRequest -> core.api.Progress lines; the last has `done` or `error`
POST /v1/engines/{engine}/rollback  -> EngineBuild, the one in use now
POST /v1/engines/{engine}/remove    RemoveRequest -> RemovedBuilds
POST /v1/engines/{engine}/prune     PruneRequest -> RemovedBuilds
"""

from core.hardware import Finding
from core.message import Message


class BuildCheck(Message, frozen=True, kw_only=True):
    """What engine-check found of a build; also the form in which it is kept beside the build."""

    ok: bool
    """Nothing blocks. Otherwise the build is not used."""
    at: str
    """When, in UTC."""
    llmgw_version: str
    engine_version: str
    tried: bool = False
    """It was started on a model, too."""
    takes_uuids: bool | None = None
    """Whether it computes on a card that it is given by its uuid; None: not tried on a card."""
    findings: list[Finding] = []


class EngineBuild(Message, frozen=True, kw_only=True):
    """One build on this machine."""

    engine: str
    name: str
    """VERSION-VARIANT."""
    version: str
    variant: str = ""
    path: str
    source: str = ""
    """Where it came from."""
    active: bool = False
    """It is used where a runtime names no build."""
    previous: bool = False
    """It was used before: `rollback` goes back to it."""
    used_by: list[str] = []
    """Runtimes that run on it, or name it."""
    size_bytes: int = 0
    check: BuildCheck | None = None
    """None: engine-check never looked at it."""
    check_stale: bool = False
    """The check was made by another llmgw, and does not count any more."""


class EngineList(Message, frozen=True, kw_only=True):
    builds: list[EngineBuild] = []


class InstallRequest(Message, frozen=True, kw_only=True):
    version: str = ""
    variant: str = ""
    """Both name one build, either the best one with it; both empty: the best for this machine."""


class RemoveRequest(Message, frozen=True, kw_only=True):
    build: str


class PruneRequest(Message, frozen=True, kw_only=True):
    apply: bool = False
    """False: only say what would go."""


class RemovedBuilds(Message, frozen=True, kw_only=True):
    """Builds that are gone (or would be)."""

    builds: list[str] = []


class BuildVerdict(Message, frozen=True, kw_only=True):
    """One build of a recipe, and what speaks against it on this machine."""

    name: str
    version: str
    variant: str
    chosen: bool = False
    reasons: list[str] = []


class EnginePlan(Message, frozen=True, kw_only=True):
    """What `llmgw engine plan` answers."""

    engine: str
    machine: str
    """In words: what was decided by."""
    mirrors: list[str] = []
    """In words: where builds come from instead of their own places."""
    chosen: str = ""
    verdicts: list[BuildVerdict] = []


class MirroredBuild(Message, frozen=True, kw_only=True):
    """What was brought into a mirror for one build."""

    name: str
    files: list[str] = []
    """Paths in the mirror."""
    problem: str = ""
    """Why nothing was."""


class MirrorReport(Message, frozen=True, kw_only=True):
    """What `llmgw engine mirror` answers."""

    engine: str
    mirror: str
    builds: list[MirroredBuild] = []


class CheckReport(Message, frozen=True, kw_only=True):
    """What `llmgw engine-check` answers."""

    engine: str
    build: str
    ok: bool
    """Nothing blocks."""
    kept: bool = False
    """It is kept with the build: one that failed is not used."""
    findings: list[Finding] = []
