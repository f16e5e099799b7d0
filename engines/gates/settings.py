"""What a gate is told when it starts: its command line, and the file with its key. The key itself is on no line."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import ConfigError
from core.secret import Secret
from engines.gates.comfyui.allowance import MIB, Allowance

KINDS = ("generic", "comfyui")
_KEY_BYTES = 4096
_ALLOWED = Allowance()


class KeyMissing(ConfigError):
    """The gate has no key to demand, so it must not serve."""

    code = "gate_key_missing"


@dataclass(frozen=True, slots=True)
class GateSettings:
    """One gate."""

    kind: str
    host: str
    port: int
    engine_port: int
    """On loopback."""
    key: Secret
    models: tuple[str, ...]
    """What `GET /v1/models` answers."""
    routes: tuple[str, ...] = ()
    """Paths that a generic gate lets through."""
    engine_health: str = "/health"
    """What the engine itself is asked, to know whether it serves."""
    state: Path | None = None
    """A directory of the gate's own, which survives it."""
    base: Path | None = None
    """ComfyUI's own directory, with its `output`, `input` and `temp`."""
    allowance: Allowance = _ALLOWED
    nodes: frozenset[str] = frozenset()
    """Further classes of ComfyUI nodes that callers may use."""


def parse_settings(argv: Sequence[str]) -> GateSettings:
    """Raises: KeyMissing; SystemExit for a wrong command line."""
    parser = argparse.ArgumentParser(prog="llmgw-gate", description=__doc__, allow_abbrev=False)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--engine-port", type=int, required=True)
    parser.add_argument("--key-file", type=Path, required=True)
    parser.add_argument("--engine-health", default="/health")
    parser.add_argument("--state", type=Path)
    parser.add_argument("--base", type=Path)
    for flag, number in (
        ("--caller-files-mib", _ALLOWED.caller_bytes // MIB),
        ("--files-mib", _ALLOWED.total_bytes // MIB),
        ("--free-mib", _ALLOWED.free_bytes // MIB),
        ("--keep-hours", int(_ALLOWED.keep_s / 3600)),
    ):
        parser.add_argument(flag, type=int, default=number)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--route", action="append", default=[])
    parser.add_argument("--node", action="append", default=[])
    given = parser.parse_args(argv)
    return GateSettings(
        kind=given.kind,
        host=given.host,
        port=given.port,
        engine_port=given.engine_port,
        key=read_key(given.key_file),
        models=tuple(given.model),
        routes=tuple(given.route),
        engine_health=given.engine_health,
        state=given.state,
        base=given.base,
        allowance=Allowance(
            caller_bytes=given.caller_files_mib * MIB,
            total_bytes=given.files_mib * MIB,
            free_bytes=given.free_mib * MIB,
            keep_s=given.keep_hours * 3600.0,
        ),
        nodes=frozenset(given.node),
    )


def read_key(path: Path) -> Secret:
    """Raises: KeyMissing when there is none, or nothing that could be one."""
    try:
        with path.open("rb") as file:
            text = file.read(_KEY_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise KeyMissing(f"the key's file {path} cannot be used: {error}") from None
    if not text:
        raise KeyMissing(f"the key's file {path} is empty")
    return Secret(text)
