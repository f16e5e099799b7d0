"""What adding a LoRA adapter as a model changes in the config: one entry of `models`. Pure."""

from cli.addition import Addition, ModelExists
from core.config.names import no_such
from core.config.schema import Config, Model
from core.errors import NotFoundError, UsageError
from engines.registry import get_adapter, names


class BaseUnknown(NotFoundError):
    """Neither a runtime nor a model has this name."""

    code = "adapter_base_unknown"


def find_base(base: str, config: Config) -> str:
    """The runtime that loads adapters for `base`: that of this id, else the first of the model of this id.

    Raises: BaseUnknown, UsageError when it can load none.
    """
    model = next((model for model in config.models if model.id == base and not model.adapter), None)
    served = [name for name in (model.runtimes() if model is not None else ()) if name in config.runtimes]
    found = base if base in config.runtimes else next(iter(served), "")
    if not found:
        known = [*config.runtimes, *(model.id for model in config.models if not model.adapter)]
        raise BaseUnknown(no_such("model or runtime", base, known), hint="llmgw model list")
    engine = config.runtimes[found].engine
    if engine not in names() or get_adapter(engine).lora_api is None:
        able = ", ".join(name for name in names() if get_adapter(name).lora_api is not None)
        raise UsageError(
            f"{engine} loads no adapters while it serves, and '{base}' is served by it", hint=f"{able} can"
        )
    return found


def plan_adapter_model(model_id: str, source: str, runtime_id: str, config: Config) -> Addition:
    """Idempotent, as every addition. Raises: ModelExists."""
    if model_id in config.aliases:
        raise ModelExists(f"'{model_id}' is an alias of '{config.aliases[model_id]}'", hint="choose another --id")
    known = next((model for model in config.models if model.id == model_id), None)
    if known is not None and not _is_same(known, source, runtime_id):
        serves = known.adapter or ", ".join(place.name for place in known.places())
        raise ModelExists(f"model '{model_id}' exists already and is {serves}", hint="choose another --id")
    entry: dict[str, object] = {"id": model_id, "runtime": runtime_id, "adapter": source}
    return Addition(model_id, runtime_id, {} if known is not None else entry, {}, changes=known is None)


def restarts(runtime_id: str, config: Config) -> bool:
    """Whether its engine has no room for adapters yet, and must be started anew to have some."""
    has_some = any(model.adapter and runtime_id in model.runtimes() for model in config.models)
    return not has_some and config.runtimes[runtime_id].options.get("runtimeLora") is not True


def _is_same(known: Model, source: str, runtime_id: str) -> bool:
    return known.adapter == source and known.runtimes() == [runtime_id]
