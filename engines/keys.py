"""Which engines are handed a key, and are then asked with it. Pure."""

from core.config.schema import Runtime
from engines.adapter import EngineAdapter, is_keyed
from engines.adapters.placeholders import KEY_PLACEHOLDER


def is_given_key(adapter: EngineAdapter, runtime: Runtime) -> bool:
    """Those that demand one, or whose gate does, and an operator's own command that asks for `{keyFile}`."""
    return is_keyed(adapter) or any(KEY_PLACEHOLDER in word for word in (*runtime.command, *runtime.args))
