"""How LoRA adapters come and go while an engine serves: what it is asked, and what its answers mean. Pure.

vLLM and SGLang take the same bodies on paths of their own, and list what they hold beside the model itself. Both
keep an adapter by name only: one whose files have changed must be unloaded before it is loaded again.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec

_MAX_WORDS = 300


@dataclass(frozen=True, slots=True)
class LoraApi:
    """The paths of one engine. All demand its key."""

    load: str
    unload: str
    models: str = "/v1/models"
    asked_with_base: bool = False
    """A request names `BASE:ADAPTER` instead of the adapter alone."""


class _Card(msgspec.Struct, frozen=True):
    id: str
    parent: str | None = None


class _Cards(msgspec.Struct, frozen=True):
    data: list[_Card]


class _Words(msgspec.Struct, frozen=True):
    message: str = ""


class _Refusal(msgspec.Struct, frozen=True):
    error: _Words | None = None
    message: str = ""
    error_message: str = ""


def load_body(name: str, path: Path) -> bytes:
    return msgspec.json.encode({"lora_name": name, "lora_path": str(path)})


def unload_body(name: str) -> bytes:
    return msgspec.json.encode({"lora_name": name})


def request_name(api: LoraApi, base: str, name: str) -> str:
    """What the `model` of a request for the adapter must be. `base`: the engine's name for its own model."""
    return f"{base}:{name}" if api.asked_with_base else name


def read_loaded(body: bytes, fixed: Collection[str]) -> list[str] | None:
    """The adapters that the engine's list of models has, without the `fixed` ones that it began with, in its order.

    None: that is no list of models.
    """
    try:
        cards = msgspec.json.decode(body, type=_Cards).data
    except msgspec.MsgspecError:
        return None
    return [card.id for card in cards if card.parent is not None and card.id not in fixed]


def read_refusal(status: int, body: bytes) -> str:
    """Why the engine did not load or unload it, in its own words, cut to a line."""
    try:
        said = msgspec.json.decode(body, type=_Refusal)
    except msgspec.MsgspecError:
        said = _Refusal()
    words = (said.error.message if said.error else "") or said.message or said.error_message
    line = " ".join((words or body.decode("utf-8", "replace")).split())
    return line[:_MAX_WORDS].rstrip(".") or f"it answered {status}"
