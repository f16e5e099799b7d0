"""ComfyUI: `main.py` of a source tree, on loopback behind the gate that keeps its callers apart.

A build of llmgw's has the tree in its environment; an operator's own is named by `engines.comfyui.dir` and `.python`.
Written for 0.3.64 and later.

- It has no key, no users, and no route that is safe to show to two callers: nothing but the gate talks to it.
- Each runtime has a base directory of its own (its home): what one runtime's callers made, no other runtime sees.
- Models are found below `weights`: a folder laid out as ComfyUI's `models`, or one checkpoint; else in the tree's own.
- Custom nodes run code, and API nodes send prompts to paid services: both stay off, but for the custom nodes named in
  `options.customNodes` (folders of the tree's `custom_nodes`), whose classes `options.allowNodes` opens to callers.
- It answers a request for work at once and works on, so its gate's counters say whether it is busy.
"""

import re
from pathlib import Path

from engines.adapter import (
    Build,
    EngineCommand,
    EngineSpec,
    Gate,
    GateKind,
    Health,
    HealthProbe,
    Lora,
    NodeFacts,
    Progress,
)
from engines.adapters.answers import read_server_health
from engines.adapters.interpreter import build_environment, python_of, require_build, tree_of
from engines.gates.command import ALLOWED_NODES, LIMITS, comfyui_base, read_names
from engines.lora_api import LoraApi
from engines.options import Option, check_options
from engines.prometheus import read_samples
from engines.spec import check_common, check_single_node, check_weights, require_clean

CUSTOM_NODES = "customNodes"
_OPTIONS = {
    CUSTOM_NODES: Option(str),
    ALLOWED_NODES: Option(str),
    **{name: Option(int, minimum=0 if name in ("freeMib", "keepHours") else 1, maximum=10**9) for name in LIMITS},
}
_MODELS_FILE = "llmgw-models.yaml"
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_CLASS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .:()+|/-]{0,199}")
_WEIGHT_FILES = (".safetensors", ".sft", ".ckpt", ".pt", ".pth", ".bin", ".gguf")
_FOLDERS = (
    *("checkpoints", "configs", "loras", "vae", "text_encoders", "clip", "unet", "diffusion_models", "clip_vision"),
    *("style_models", "embeddings", "diffusers", "vae_approx", "controlnet", "gligen", "upscale_models"),
    *("hypernetworks", "photomaker", "classifiers", "model_patches", "audio_encoders", "latent_upscale_models"),
)
"""Kinds of models, each in a folder of its name."""


class ComfyUiAdapter:
    """See the module."""

    name = "comfyui"
    needs_weights = False
    needs_build = True
    demands_key = False
    gate: Gate | None = Gate(GateKind.COMFYUI, "/system_stats")
    works_on = True
    routes = frozenset({"/v1/workflows"})
    usage_when_asked = False  # a workflow has no tokens
    overhead_mib: int | None = 4096
    lora = Lora.NEVER
    lora_api: LoraApi | None = None
    multi_node = False
    metrics_path: str | None = "/metrics"

    def check_spec(self, spec: EngineSpec) -> list[str]:
        problems = check_common(spec) + check_single_node(spec) + check_options(spec.options, _OPTIONS)
        if spec.weights is not None:
            problems += check_weights(spec.weights)
        for option, pattern in ((CUSTOM_NODES, _FOLDER), (ALLOWED_NODES, _CLASS)):
            bad = [name for name in read_names(spec, option) if not pattern.fullmatch(name)]
            problems.extend(f"options.{option}: {name[:60]!r} cannot be a name" for name in bad)
        return problems

    def build_command(self, spec: EngineSpec, build: Build | None, facts: NodeFacts) -> EngineCommand:
        require_clean(spec, self.check_spec(spec))
        build = require_build(spec, build)
        tree = tree_of(build)
        base, custom = comfyui_base(spec), read_names(spec, CUSTOM_NODES)
        models = base / _MODELS_FILE
        argv = (
            *(str(python_of(build)), str(tree / "main.py"), "--listen", spec.host, "--port", str(spec.port)),
            *("--base-directory", str(base), "--database-url", f"sqlite:///{base}/comfyui.db"),
            *("--extra-model-paths-config", str(models)),
            # Both take all words up to the next flag, so none of the operator's may follow.
            *(("--whitelist-custom-nodes", *custom) if custom else ()),
            *("--disable-all-custom-nodes", "--disable-auto-launch", "--disable-api-nodes"),
            *(() if spec.devices else ("--cpu",)),
            *spec.args,
        )
        quiet = {"PYTHONDONTWRITEBYTECODE": "1"}
        return EngineCommand(
            argv=argv,
            environment=build_environment(spec, build, facts, quiet),
            read_only_paths=tuple(str(path) for path in (tree, build.executable.parent.parent, spec.weights) if path),
            read_write_paths=(str(spec.home),),
            folders=(str(base), *(str(base / name) for name in ("input", "output", "temp", "user", "custom_nodes"))),
            files=((str(models), models_file(spec.weights, tree)),),
        )

    def health_probe(self, spec: EngineSpec) -> HealthProbe:
        return HealthProbe("/health")

    def read_health(self, status: int, body: bytes) -> Health:
        return read_server_health(status)

    def read_progress(self, metrics: str) -> Progress:
        samples = read_samples(metrics)
        return Progress(
            running=samples.get("llmgw_gate_prompts_running"),
            waiting=samples.get("llmgw_gate_prompts_waiting"),
            steps_total=samples.get("llmgw_gate_steps_total"),
        )


def models_file(weights: Path | None, tree: Path) -> str:
    """Where ComfyUI finds models, in the form of its `extra_model_paths.yaml`. Pure."""
    lines = ["llmgw:"]
    if weights is not None and weights.suffix in _WEIGHT_FILES:
        lines += [f"  {kind}: {_quote(str(weights.parent))}" for kind in ("checkpoints", "diffusion_models")]
    else:
        root = weights or tree / "models"
        lines += [f"  {kind}: {_quote(str(root / kind))}" for kind in _FOLDERS]
    lines += [f"  custom_nodes: {_quote(str(tree / 'custom_nodes'))}"]
    return "\n".join(lines) + "\n"


def _quote(path: str) -> str:
    """A YAML text in single quotes; ComfyUI splits the value at line ends, and a path of ours has none."""
    return "'" + path.replace("'", "''") + "'"
