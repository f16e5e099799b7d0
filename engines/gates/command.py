"""The command line of a runtime's gate. Pure."""

import sys
from dataclasses import dataclass
from pathlib import Path

from engines.adapter import KEY_FILE, EngineAdapter, EngineCommand, EngineSpec, GateKind
from engines.own_tree import ROOT, python_path

ALLOWED_NODES = "allowNodes"
"""Option of a ComfyUI runtime: classes of nodes, with commas between them."""


LIMITS = {
    "callerFilesMib": "--caller-files-mib",
    "filesMib": "--files-mib",
    "freeMib": "--free-mib",
    "keepHours": "--keep-hours",
}
"""Options of a ComfyUI runtime about callers' files, and the gate's flags for them."""


@dataclass(frozen=True, slots=True)
class GatePlace:
    """Where a gate stands."""

    port: int
    engine_port: int
    state: Path


def build_gate_command(adapter: EngineAdapter, spec: EngineSpec, place: GatePlace) -> EngineCommand:
    """For an adapter that has a gate; `spec` is the engine's."""
    gate = adapter.gate
    if gate is None:
        raise ValueError(f"{adapter.name} has no gate")
    words = [
        *(sys.executable, "-m", "engines.gates", gate.kind.value, "--host", spec.host, "--port", str(place.port)),
        *("--engine-port", str(place.engine_port), "--key-file", KEY_FILE, "--engine-health", gate.engine_health),
        # In one word: an id may begin with a dash.
        *(f"--model={model}" for model in spec.served_models),
    ]
    if gate.kind is GateKind.GENERIC:
        words += [f"--route={route}" for route in sorted(adapter.routes)]
    else:
        words += ["--state", str(place.state), "--base", str(comfyui_base(spec))]
        limits = [(flag, spec.options[name]) for name, flag in LIMITS.items() if name in spec.options]
        words += [word for flag, number in limits for word in (flag, str(number))]
        words += [*(f"--node={name}" for name in read_names(spec, ALLOWED_NODES))]
    return EngineCommand(
        argv=tuple(words),
        environment=(("HOME", str(place.state)), ("PYTHONPATH", python_path()), ("PYTHONUNBUFFERED", "1")),
        read_only_paths=(str(ROOT),),
        read_write_paths=(str(place.state), *((str(comfyui_base(spec)),) if gate.kind is GateKind.COMFYUI else ())),
        allow_jit=False,
    )


def comfyui_base(spec: EngineSpec) -> Path:
    """Where a runtime's ComfyUI keeps its files."""
    return spec.home / "base"


def read_names(spec: EngineSpec, option: str) -> tuple[str, ...]:
    """An option that holds names with commas between them."""
    value = spec.options.get(option, "")
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else ()
