"""What is wrong with a spec whatever its engine: names, paths and words that no engine or unit could carry. Pure."""

import ipaddress
from pathlib import Path

from core.errors import ConfigError
from engines.adapter import EngineSpec, Rendezvous

MODEL_ID_MAX = 200
"""Longest id of a model, in characters; the config's own bound."""


def check_common(spec: EngineSpec) -> list[str]:
    """Everything wrong with what all engines share, as sentences."""
    problems = []
    if not spec.served_models:
        problems.append(f"runtime {spec.runtime_id!r} serves no model")
    for model in spec.served_models:
        problems.extend(_check_model_id(model))
    if not 0 < spec.port < 65536:
        problems.append(f"port {spec.port} is not between 1 and 65535")
    if spec.context_length < 0:
        problems.append("the context length is negative")
    if spec.max_concurrency < 1:
        problems.append("the concurrency is less than 1")
    problems.extend(f"argument {word[:60]!r} has a control character" for word in spec.args if not is_clean(word))
    problems.extend(_check_rendezvous(spec.rendezvous))
    return problems


def check_single_node(spec: EngineSpec) -> list[str]:
    """For engines that cannot spread a model over nodes."""
    return [f"{spec.engine} cannot serve one model on several nodes"] if spec.rendezvous else []


def check_weights(weights: Path | None) -> list[str]:
    """For engines that need weights: whether the path can be handed over at all. Does not look at the disk."""
    if weights is None:
        return ["the runtime needs weights (runtimes.<id>.weights)"]
    if not weights.is_absolute():
        return [f"weights {str(weights)[:120]!r} is not an absolute path"]
    if not is_clean(str(weights)):
        return [f"weights {str(weights)[:120]!r} has a control character in its path"]
    return []


def is_clean(word: str) -> bool:
    """Whether a word can stand in an argv and in a unit file: no control characters, no lone surrogates."""
    if any(ord(c) < 32 or ord(c) == 127 for c in word):
        return False
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_clean(spec: EngineSpec, problems: list[str]) -> None:
    """Raise one `ConfigError` that says all `problems`, if there are any."""
    if problems:
        raise ConfigError(f"runtime {spec.runtime_id!r}: {'; '.join(problems)}", code="runtime_spec_invalid")


def _check_rendezvous(meeting: Rendezvous | None) -> list[str]:
    if meeting is None:
        return []
    problems = []
    if not 0 <= meeting.rank < meeting.size:
        problems.append(f"rank {meeting.rank} is not one of {meeting.size} ranks")
    if not 0 < meeting.port < 65536:
        problems.append(f"rendezvous port {meeting.port} is not between 1 and 65535")
    for address in (meeting.address, meeting.own_address or meeting.address):
        try:
            ipaddress.ip_address(address)
        except ValueError:
            problems.append(f"{address[:60]!r} is not an IP address to meet at")
    return problems


def _check_model_id(model: str) -> list[str]:
    if not model or len(model) > MODEL_ID_MAX:
        return [f"a model's id must have 1 to {MODEL_ID_MAX} characters, not {len(model)}"]
    if not is_clean(model):
        return [f"model id {model[:60]!r} has a control character"]
    if model != model.strip():
        return [f"model id {model!r} begins or ends with a space"]
    return []
