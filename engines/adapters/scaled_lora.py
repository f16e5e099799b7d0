"""`options.lora` of an engine that applies LoRA adapters to all requests: `/path, /path:SCALE`. Pure.

llama-server names no model after an adapter, so the runtime's models are the base with all of these on it.
"""

import math

from engines.adapter import EngineSpec
from engines.options import Option

SCALED_LORA_OPTIONS = {"lora": Option(str)}


def read_scaled_lora(spec: EngineSpec) -> list[tuple[str, str]]:
    """(path, scale) of each adapter, as written; the scale is 1 where none is."""
    text = spec.options.get("lora")
    if not isinstance(text, str) or not text.strip():
        return []
    pairs = (part.strip().partition(":") for part in text.split(","))
    return [(path.strip(), scale.strip() if colon else "1") for path, colon, scale in pairs]


def check_scaled_lora(spec: EngineSpec) -> list[str]:
    """Everything wrong with the adapters, as sentences."""
    problems = []
    seen: set[str] = set()
    for path, scale in read_scaled_lora(spec):
        shown = repr(path[:120])
        if not path.startswith("/") or ".." in path.split("/"):
            problems.append(f"options.lora: {shown} is no absolute path")
        elif not _is_number(scale):
            problems.append(f"options.lora: the scale {scale[:40]!r} of {shown} is no number")
        elif path in seen:
            problems.append(f"options.lora: {shown} stands there twice")
        seen.add(path)
    return problems


def _is_number(text: str) -> bool:
    try:
        # llama-server reads decimals alone; Python also takes 1_0, and digits of other scripts.
        return math.isfinite(float(text)) and text.isascii() and "_" not in text
    except ValueError:
        return False
