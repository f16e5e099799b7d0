"""Wire messages of `llmgw wipe`.

GET  /v1/wipe?models&all  -> WipePlan
POST /v1/wipe             WipeRequest -> WipePlan, carried out
"""

from core.message import Message


class WipeItem(Message, frozen=True, kw_only=True):
    """One file or folder that goes."""

    path: str
    what: str
    size_bytes: int


class WipePlan(Message, frozen=True, kw_only=True):
    """Everything that goes, and the engines that are stopped for it."""

    node: str
    items: list[WipeItem] = []
    stops: list[str] = []
    """Runtimes that run now."""


class WipeRequest(Message, frozen=True, kw_only=True):
    """`confirm` must be the node's name: a wipe is typed, never clicked by accident."""

    confirm: str
    models: bool = False
    all: bool = False
