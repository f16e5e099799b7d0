"""Which values of a config may be shown. Pure.

Keys are secret by what they are (`security.apiKeys`, `backends.*.apiKey`, `tracing.headers`), by their name
(`runtimes.*.env.HF_TOKEN`), or because an operator kept them out of the file (`${NAME}` in a command, an argument or an
environment value).
"""

import re
from collections.abc import Collection, Mapping

from core.config.expand import join

MASK = "…"

_ALWAYS = re.compile(
    r"security\.(apiKeys|adminApiKeys)\[\d+\]|(cluster\.nodes|backends)\..*\.apiKey|tracing\.headers\..*", re.DOTALL
)
_BY_NAME = re.compile(
    r"runtimes\..*\.env\.[^.]*(KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH)[^.]*", re.IGNORECASE | re.DOTALL
)
_BY_REFERENCE = re.compile(r"runtimes\..*\.(env\..*|command\[\d+\]|args\[\d+\])", re.DOTALL)


def is_secret(path: str, references: Collection[str]) -> bool:
    """Whether the value at `path` (`security.apiKeys[0]`) must not be shown."""
    if _ALWAYS.fullmatch(path) or _BY_NAME.fullmatch(path):
        return True
    return path in references and _BY_REFERENCE.fullmatch(path) is not None


def mask(value: object, references: Collection[str], path: str = "") -> object:
    """The same document with `…` for everything secret."""
    if isinstance(value, Mapping):
        return {key: mask(item, references, join(path, str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask(item, references, f"{path}[{index}]") for index, item in enumerate(value)]
    return MASK if value not in ("", None) and is_secret(path, references) else value


def leaves(value: object, path: str = "") -> list[tuple[str, object]]:
    """Every value with its path, in order; an empty section or list counts as a value."""
    if isinstance(value, Mapping) and value:
        return [leaf for key, item in value.items() for leaf in leaves(item, join(path, str(key)))]
    if isinstance(value, list) and value:
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, f"{path}[{index}]")]
    return [(path, value)]
