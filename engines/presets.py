"""The models that are known by name (`engines/presets.toml`)."""

import difflib
import functools
import tomllib
from pathlib import Path

import msgspec

from core.errors import BugError, NotFoundError
from engines.sources import parse_source

_FILE = Path(__file__).with_name("presets.toml")


class Preset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that is needed to serve a model that somebody asks for by name."""

    id: str = ""
    """The model's id for clients; filled from the table's name."""
    title: str
    engine: str
    source: str
    licence: str
    """An SPDX identifier."""
    size_bytes: int
    context_length: int
    args: list[str] = []
    """What the model's makers recommend, as arguments of the engine."""
    memory_mib: int
    """What the runtime takes at that context with one slot, roughly."""


@functools.cache
def load_presets() -> dict[str, Preset]:
    """All presets by name. Raises: BugError."""
    try:
        tables = tomllib.loads(_FILE.read_text(encoding="utf-8"))
        presets = {name: msgspec.convert({**table, "id": name}, Preset) for name, table in tables.items()}
        for preset in presets.values():
            parse_source(preset.source)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BugError(f"presets.toml is broken: {error}", code="presets_invalid") from error
    return presets


def resolve_preset(name: str) -> Preset:
    """Raises: NotFoundError with the nearest name."""
    presets = load_presets()
    if name not in presets:
        near = difflib.get_close_matches(name, presets, n=1)
        hint = f"did you mean {near[0]}?" if near else f"presets: {', '.join(sorted(presets))}"
        raise NotFoundError(f"there is no preset {name[:60]!r}", hint=hint, code="preset_unknown")
    return presets[name]
