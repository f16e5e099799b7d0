"""`options.lora`: LoRA adapters that an engine loads at its start, as `NAME=/path, NAME=/path`. Pure."""

from engines.adapter import EngineSpec
from engines.options import Option
from engines.policy import find_flag
from engines.spec import is_clean

LORA_OPTIONS = {
    "lora": Option(str),
    "maxLoras": Option(int, minimum=1, maximum=1024),
    "maxLoraRank": Option(int, minimum=1, maximum=1024),
}


def read_lora(spec: EngineSpec) -> list[tuple[str, str]]:
    """(name, path) of each adapter, as written; `check_lora` says what is wrong with them."""
    text = spec.options.get("lora")
    if not isinstance(text, str) or not text.strip():
        return []
    pairs = []
    for part in text.split(","):
        name, _, path = part.strip().partition("=")
        pairs.append((name.strip(), path.strip()))
    return pairs


def readable_adapters(spec: EngineSpec) -> tuple[str, ...]:
    """Every path that the engine may be told to load an adapter from."""
    return (*(path for _, path in read_lora(spec)), *spec.adapter_paths)


def check_lora(spec: EngineSpec) -> list[str]:
    """Everything wrong with the adapters, as sentences."""
    problems = []
    names = set(spec.served_models)
    for name, path in read_lora(spec):
        shown = repr(f"{name}={path}"[:120])
        if not name or not path or name.startswith("-") or "=" in path or not is_clean(name + path):
            problems.append(f"options.lora: {shown} is not of the form NAME=/absolute/path")
        elif not path.startswith("/") or ".." in path.split("/"):
            problems.append(f"options.lora: the path in {shown} is not absolute")
        elif name in names:
            problems.append(f"options.lora: {name[:60]!r} is the name of another model or adapter of this runtime")
        names.add(name)
    return problems


def check_one_server(spec: EngineSpec, *flags: str) -> list[str]:
    """An adapter that is loaded while it serves is known to the process that was asked for it. `flags` make more."""
    word = find_flag(spec.engine, spec.args, *flags) if spec.adapter_slots else ""
    if not word:
        return []
    return [
        f"argument {word[:60]!r} makes several servers, and only one of them would know an adapter that is loaded"
        " while they serve: remove it, or the models that are adapters of this runtime"
    ]
