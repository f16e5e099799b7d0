"""Wire messages of the weights on a machine.

GET  /v1/weights         -> WeightsList
POST /v1/weights/fetch   core.api.WeightsRequest -> core.api.Progress lines
POST /v1/weights/prune   PruneWeightsRequest -> RemovedWeights
"""

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
