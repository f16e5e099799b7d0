"""How much memory a runtime needs: what the config says, else what was measured, else what its weights suggest.

The rule is pure; `Estimates` keeps what was measured in a small file, so that the next load is judged by the truth.
A measure belongs to one spec: another context length or other weights, and it is forgotten.
"""

from pathlib import Path
from typing import Annotated

import msgspec

from core.files import StorageError, ensure_directory, write_atomic

_WEIGHTS_FACTOR = 1.1
"""Loaded weights beside their file: alignment, dequantised parts."""

_MARGIN = 1.05
"""Over what was measured: the next load may be a little larger."""


Mib = Annotated[int, msgspec.Meta(ge=0, le=1 << 27)]
"""Up to 128 TiB: no machine holds more, so a larger number was written by nobody who measured."""


class Measured(msgspec.Struct, frozen=True):
    """The most that one spec was seen to hold."""

    spec_hash: str
    host_mib: Mib
    gpu_mib: Mib = 0
    """On all its cards together; 0: it has none, or the driver did not say."""


def estimate_mib(
    *, configured_gib: float | None, measured_mib: int | None, weights_bytes: int, overhead_mib: int | None
) -> int | None:
    """MiB of host memory; None when nothing tells.

    A configured size is also the unit's hard limit, so nothing can need more than it.
    """
    if configured_gib is not None:
        return int(configured_gib * 1024)
    if measured_mib is not None:
        return int(measured_mib * _MARGIN)
    if overhead_mib is None:
        return None
    return int((weights_bytes >> 20) * _WEIGHTS_FACTOR) + overhead_mib


class Estimates:
    """What was measured, by runtime; kept in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._measured = _read(path)

    def measured_mib(self, runtime_id: str, spec_hash: str) -> int | None:
        """The most that this spec held."""
        known = self._measured.get(runtime_id)
        return known.host_mib if known is not None and known.spec_hash == spec_hash else None

    def measured_gpu_mib(self, runtime_id: str, spec_hash: str) -> int | None:
        """The most that this spec held of its cards, with the margin; None: never measured."""
        known = self._measured.get(runtime_id)
        if known is None or known.spec_hash != spec_hash or not known.gpu_mib:
            return None
        return int(known.gpu_mib * _MARGIN)

    def learn(self, runtime_id: str, spec_hash: str, host_mib: int, gpu_mib: int = 0) -> bool:
        """Remember a larger measure; whether there was something new. A full disk only loses the memory of it."""
        known = self._measured.get(runtime_id)
        if known is None or known.spec_hash != spec_hash:
            known = Measured(spec_hash, 0)
        larger = Measured(spec_hash, max(host_mib, known.host_mib), max(gpu_mib, known.gpu_mib))
        if larger == known:
            return False
        self._measured[runtime_id] = larger
        try:
            ensure_directory(self._path.parent)
            write_atomic(self._path, msgspec.json.encode(self._measured), mode=0o600)
        except StorageError:
            return True
        return True


def _read(path: Path) -> dict[str, Measured]:
    """What an earlier daemon measured; nothing when the file is missing or was not written by us."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Measured])
    except (OSError, msgspec.MsgspecError):
        return {}
