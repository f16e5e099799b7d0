"""The first request to a loaded engine, asked by us so that no client has to wait for it.

Engines compile kernels, fill caches and map weights at their first request; some fail only there. `plan_warmup` is
pure; `warm_up` asks.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from core.config.schema import Model, Runtime, Warmup
from core.errors import DependencyError, LlmgwError
from core.http.client import HttpClient
from daemon.runtimes.health import Probe

_CHAT, _COMPLETION, _EMBEDDING = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
_SHOWN_BYTES = 300
_ANSWER_LIMIT_BYTES = 16 << 20


class WarmupFailed(DependencyError):
    """The engine says that it serves, and cannot answer its first request."""

    code = "runtime_warmup_failed"


@dataclass(frozen=True, slots=True)
class WarmupCall:
    """What is asked."""

    path: str
    body: bytes


def plan_warmup(
    runtime: Runtime, models: Iterable[Model], routes: frozenset[str], engine_model: str
) -> WarmupCall | None:
    """The request for a runtime with these models; None: it wants none, or its engine has no route that we know."""
    if isinstance(runtime.warmup, Warmup):
        return _call(runtime.warmup.path, {"model": engine_model, **runtime.warmup.body})
    if not runtime.warmup:
        return None
    if _EMBEDDING in routes and any(model.kind == "embedding" for model in models):
        return _call(_EMBEDDING, {"model": engine_model, "input": "hello"})
    if _CHAT in routes:
        messages = [{"role": "user", "content": "hello"}]
        return _call(_CHAT, {"model": engine_model, "messages": messages, "max_tokens": 1})
    if _COMPLETION in routes:
        return _call(_COMPLETION, {"model": engine_model, "prompt": "hello", "max_tokens": 1})
    return None


async def warm_up(call: WarmupCall, probe: Probe, http: HttpClient, timeout_s: float) -> None:
    """Ask, and wait for the whole answer. Raises: WarmupFailed."""
    headers = {"Content-Type": "application/json", **probe.headers()}
    runtime_id = probe.spec.runtime_id
    hint = f"runtimes.{runtime_id}.warmup, or llmgw logs {runtime_id}"
    try:
        reply = await http.fetch(
            "POST",
            probe.url(call.path),
            headers=headers,
            body=call.body,
            timeout_s=timeout_s,
            limit_bytes=_ANSWER_LIMIT_BYTES,
        )
    except LlmgwError as error:
        raise WarmupFailed(
            f"the engine of {runtime_id} did not answer its first request: {error}", hint=hint
        ) from error
    if reply.status >= 300:
        said = reply.body[:_SHOWN_BYTES].decode("utf-8", "replace").strip()
        raise WarmupFailed(
            f"the engine of {runtime_id} answered its first request with {reply.status}: {said}", hint=hint
        )


def _call(path: str, body: dict[str, object]) -> WarmupCall:
    return WarmupCall(path, msgspec.json.encode(body))
