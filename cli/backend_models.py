"""What `llmgw model add ID --backend B` changes in the config: one entry of `models`. Pure."""

from cli.addition import Addition, ModelExists
from cli.backends import BackendUnknown
from core.config.names import no_such
from core.config.schema import Config, Model


def plan_backend_model(model_id: str, backend: str, upstream_model: str, kind: str | None, config: Config) -> Addition:
    """Idempotent, as every addition. Raises: BackendUnknown, ModelExists."""
    if backend not in config.backends:
        hint = "add it to backends in the config: llmgw-config(5)"
        raise BackendUnknown(no_such("backend", backend, config.backends), hint=hint)
    if model_id in config.aliases:
        raise ModelExists(f"'{model_id}' is an alias of '{config.aliases[model_id]}'", hint="choose another id")
    known = next((model for model in config.models if model.id == model_id), None)
    if known is not None and not _is_same(known, backend, upstream_model, kind):
        raise ModelExists(
            f"model '{model_id}' exists already and is served by {_served_by(known)}",
            hint="add it under another name, or change the config (targets are several) and run llmgw reload",
        )
    entry: dict[str, object] = {"id": model_id, "backend": backend}
    if upstream_model:
        entry["upstreamModel"] = upstream_model
    if kind not in (None, Model(id="-").kind):
        entry["kind"] = kind
    return Addition(model_id, "", {} if known is not None else entry, {}, changes=known is None)


def _is_same(known: Model, backend: str, upstream_model: str, kind: str | None) -> bool:
    is_same_name = (upstream_model or known.id) == (known.upstream_model or known.id)
    return known.backend == backend and is_same_name and kind in (None, known.kind)


def _served_by(model: Model) -> str:
    names = ", ".join(place.name for place in model.places())
    return f"{names} as {model.upstream_model}" if model.upstream_model else names
