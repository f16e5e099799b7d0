"""Reads the few numbers that we need from an engine's Prometheus text.

Only sums by name: an engine that labels a counter by model or rank is one runtime all the same. Hostile or broken
lines are passed over, as are `NaN` and infinities (llama.cpp's rates are `inf` before the first token).
"""

import math


def read_samples(text: str) -> dict[str, float]:
    """Metric name -> sum over all label sets; comments, broken lines and values that are no number left out."""
    samples: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line[0] == "#":
            continue
        name, value = _split(line)
        if name and math.isfinite(value):
            samples[name] = samples.get(name, 0.0) + value
    return samples


def _split(line: str) -> tuple[str, float]:
    """`name{labels} value [timestamp]` -> (name, value); ("", nan) for anything else."""
    name, brace, rest = line.partition("{")
    if brace:
        # A label's value may hold spaces and braces, the number after the last one never does.
        rest = rest.rpartition("}")[2]
    else:
        name, _, rest = line.partition(" ")
    words = rest.split()
    try:
        return name.strip(), float(words[0])
    except (IndexError, ValueError):
        return "", math.nan
