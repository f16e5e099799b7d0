"""Whether an engine still has the flags that llmgw uses, judged by the engine's own help. Pure.

The widest commands that llmgw would ever build (every option, several nodes) are held against the help. A help that
was cut short proves nothing: then what is missing is a warning. `engines.trial` looks at the running engine.
"""

from dataclasses import replace
from pathlib import Path

from core.hardware import Finding
from engines.adapter import Build, EngineAdapter, EngineSpec, NodeFacts, Rendezvous
from engines.adapters.interpreter import python_of, tree_of
from engines.help import parse_help

OK, WARNING, FAILED = "ok", "warning", "blocks"

_LORA: dict[str, str | int | float | bool] = {"lora": "a=/srv/a,b=/srv/b", "maxLoras": 2, "maxLoraRank": 16}
_PARALLEL: dict[str, str | int | float | bool] = {
    "tensorParallel": 2, "pipelineParallel": 2, "memoryFraction": 0.8, "dtype": "auto", "quantization": "fp8",
    "threads": 2, "embeddings": True, "runtimeLora": True, "kvEvents": True,
}  # fmt: skip
WIDEST: dict[str, list[dict[str, str | int | float | bool]]] = {
    "llamacpp": [
        {
            "threads": 2,
            "gpuLayers": 9,
            "embeddings": True,
            "pooling": "mean",
            "mmproj": "/srv/p.gguf",
            "lora": "/srv/l",
        },
        {"reranking": True},
    ],
    "vllm": [{**_PARALLEL, **_LORA, "eager": True, "blockSize": 16, "kvCacheGib": 4}],
    "sglang": [{**_PARALLEL, **_LORA, "pageSize": 1, "maxTotalTokens": 64}],
    "comfyui": [{"customNodes": "one,two"}],
}
"""Options that together make an engine's adapter use every flag that it knows."""

_END_OF_HELP = {"vllm": "--json-arg.key4+"}
"""Words of the last paragraph of a whole help."""

_FACTS = NodeFacts(cpu_count=2, memory_total_mib=4096)


def widest_flags(adapter: EngineAdapter) -> frozenset[str]:
    """Every flag that llmgw may put on this engine's command line."""
    build = Build(adapter.name, "check", "0", Path("/nonexistent/bin/python"))
    flags: set[str] = set()
    for spec in _widest_specs(adapter):
        argv = adapter.build_command(spec, build, _FACTS).argv
        # What the launcher adds (`flag:--api-key`) is an argument of the engine's, too.
        words = [word.removeprefix("flag:") for word in argv]
        flags.update(word.partition("=")[0] for word in words if word.startswith("-") and len(word) > 1)
    return frozenset(flags)


def _widest_specs(adapter: EngineAdapter) -> list[EngineSpec]:
    spec = EngineSpec(
        "check", adapter.name, ("check",), 8080, weights=Path("/srv/m"), context_length=4096, max_concurrency=2,
        devices=("GPU-1", "GPU-2"), home=Path("/nonexistent"),
    )  # fmt: skip
    specs = [replace(spec, devices=()), replace(spec, context_length=0)]
    if adapter.lora_api is not None:
        specs.append(replace(spec, adapter_slots=2))
    meeting = Rendezvous(rank=1, size=2, address="10.0.0.1", port=29500, own_address="10.0.0.2")
    for options in WIDEST.get(adapter.name, []):
        wide = replace(spec, options=options)
        # Some are of the head alone, some of the others.
        ranks = (replace(meeting, rank=0), meeting) if adapter.multi_node else (None,)
        specs.extend(replace(wide, rendezvous=rank) for rank in ranks)
    return specs


def help_command(adapter: EngineAdapter, build: Build) -> tuple[tuple[str, ...], dict[str, str]]:
    """How to ask for the engine's own, whole help: argv and what the environment must have besides."""
    if adapter.name == "vllm":
        # Without a card it ends with a complaint about the device before it shows anything.
        argv = (str(python_of(build)), "-m", "vllm.entrypoints.cli.main", "serve", "--help=all")
        return argv, {"VLLM_TARGET_DEVICE": "cpu", "VLLM_NO_USAGE_STATS": "1", "COLUMNS": "120"}
    if adapter.name == "sglang":
        # The launcher's help: `python --help` would be Python's.
        return (str(python_of(build)), "-m", "sglang.launch_server", "--help"), {"COLUMNS": "120"}
    if adapter.name == "comfyui":
        return (str(python_of(build)), str(tree_of(build) / "main.py"), "--help"), {"COLUMNS": "120"}
    return (str(build.executable), "--help"), {}


def check_help(adapter: EngineAdapter, text: str) -> list[Finding]:
    """One finding for the help itself, and one for every flag of ours that it lacks."""
    read = parse_help(text, ends_with=_END_OF_HELP.get(adapter.name, ""))
    if not read.flags:
        return [Finding(check="help", status=FAILED, found="it names no flags; is this the engine's own help?")]
    flags = widest_flags(adapter)
    missing = sorted(flags - read.names)
    if read.cut_short:
        said = f"the help was cut short ({read.cut_short}); {len(flags) - len(missing)} of {len(flags)} flags are in it"
        return [Finding(check="help", status=WARNING, found=said, remedy="give the whole help (--help-output FILE)")]
    if not missing:
        return [Finding(check="help", status=OK, found=f"all {len(flags)} flags that llmgw uses are in it")]
    return [_missing(flag, read.nearest(flag)) for flag in missing]


def _missing(flag: str, nearest: str) -> Finding:
    renamed = f"; is it {nearest} now?" if nearest else ""
    return Finding(
        check=f"flag {flag}",
        status=FAILED,
        found=f"the engine no longer has {flag}{renamed}",
        remedy="use the build that llmgw knows (llmgw engine plan), or a newer llmgw",
    )
