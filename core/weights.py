"""Wire messages of the weights on a machine.

GET  /v1/weights         -> WeightsList
POST /v1/weights/fetch   core.api.WeightsRequest -> core.api.Progress lines
POST /v1/weights/prune   PruneWeightsRequest -> RemovedWeights
POST /v1/weights/verify  VerifyWeightsRequest -> core.api.Progress lines; the one before the last has `verified`
"""

from enum import StrEnum

from core.message import Message


class StoredWeights(Message, frozen=True, kw_only=True):
    """What one fetch made: a package, a file of the web, a model at one commit."""

    path: str
    kind: str
    """`package`, `https` or `hf`."""
    name: str
    size_bytes: int
    used_by: list[str] = []
    """Runtimes whose weights lie in it."""


class WeightsList(Message, frozen=True, kw_only=True):
    weights: list[StoredWeights] = []


class PruneWeightsRequest(Message, frozen=True, kw_only=True):
    apply: bool = False
    """False: only say what would go."""


class RemovedWeights(Message, frozen=True, kw_only=True):
    weights: list[StoredWeights] = []
    """What is gone (or would be)."""


class FileState(StrEnum):
    """What a file of a model was found to be."""

    WHOLE = "whole"
    """It is what was fetched."""
    DIFFERS = "differs"
    MISSING = "missing"
    NOT_A_FILE = "notAFile"
    """A link, a folder or something else stands in its place."""
    UNREADABLE = "unreadable"
    """The disk, or a permission, says no."""
    CHANGING = "changing"
    """It was replaced again and again while it was read."""
    NO_DIGEST = "noDigest"
    """Nothing is known that it could be held against."""
    MENDED = "mended"
    """It was broken, and was fetched again."""


SOUND = frozenset({FileState.WHOLE, FileState.NO_DIGEST, FileState.MENDED})
"""States that are no finding."""


class VerifyWeightsRequest(Message, frozen=True, kw_only=True):
    model: str = ""
    """A model, a runtime, a source, or a name of `WeightsList`; empty: everything."""
    apply: bool = False
    """Fetch again what is broken."""


class VerifiedFile(Message, frozen=True, kw_only=True):
    path: str
    unit: str
    """The name in `WeightsList`; empty for a file of the operator's own."""
    state: FileState
    expected: str = ""
    """The digest under which it was fetched."""
    found: str = ""
    """The digest that it has (before it was mended)."""
    digest_kind: str = ""
    """`sha256`, or `git`: a blob's name in git."""
    size_bytes: int = 0
    problem: str = ""
    remedy: str = ""
    """A command, or nothing."""


class VerifiedWeights(Message, frozen=True, kw_only=True):
    files: list[VerifiedFile] = []
    restart: list[str] = []
    """Running runtimes that have read a file that was mended since."""
