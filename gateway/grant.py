"""What a request may do by the key it brought: models, an end in time, limits. Pure, made once per route table."""

import re
from collections.abc import Callable
from typing import NamedTuple

from core.api import ApiKey

_MOST_REMEMBERED = 1024


class KeyLimits(NamedTuple):
    """What a key may have, over all workers; 0: no limit."""

    requests: int
    """In any 60 seconds."""
    tokens: int
    """Likewise."""
    concurrency: int


class ModelRule:
    """Which models: ids, and patterns in which `*` stands for any characters and `?` for one."""

    __slots__ = ("_known", "_matches", "_patterns")

    def __init__(self, patterns: list[str]) -> None:
        self._patterns = patterns
        self._matches: Callable[[str], object] | None = None
        """Compiled when it is needed: there may be thousands of keys."""
        self._known: dict[str, bool] = {}

    def allows(self, model: str) -> bool:
        """Whether a model's id or alias is one of them. Remembered: patterns may be many."""
        known = self._known.get(model)
        if known is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            known = self._known[model] = self._compile()(model) is not None
        return known

    def _compile(self) -> Callable[[str], object]:
        if self._matches is None:
            expression = "|".join(f"(?:{_translate(pattern)})" for pattern in self._patterns)
            self._matches = re.compile(expression, re.DOTALL).fullmatch
        return self._matches


def _translate(pattern: str) -> str:
    """A pattern as a regular expression that never tries twice: a `*` takes the shortest way to what follows it, once.

    As `fnmatch` does it, with atomic groups, so that no name of a model makes a pattern of many stars slow.
    """
    head, *rest = [
        "".join("." if c == "?" else re.escape(c) for c in part) for part in re.sub(r"\*+", "*", pattern).split("*")
    ]
    if not rest:
        return head
    *middle, last = rest
    return f"{head}{''.join(f'(?>.*?{part})' for part in middle)}.*{last}"


class Grant:
    """See the module. Two are equal only if they are the same: a table's keys have one each."""

    __slots__ = ("expires_s", "identity", "limits", "models", "name")

    def __init__(self, name: str, key: ApiKey | None = None) -> None:
        self.name = name
        """For logs and metrics; empty: open access."""
        self.identity = key.sha256 if key else ""
        """Told nobody; what the key's counts stand under on the board."""
        self.expires_s = key.expires_s if key else 0.0
        """Wall clock; 0: never."""
        self.models = ModelRule(key.models) if key and key.models else None
        """None: all."""
        self.limits = _limits(key) if key else None

    def allows(self, asked: str, model_id: str) -> bool:
        """Whether a model may be used that was asked for by one name and has this id."""
        return self.models is None or self.models.allows(asked) or self.models.allows(model_id)


OPEN = Grant("")
"""Of a request that needs no key."""


def _limits(key: ApiKey) -> KeyLimits | None:
    limits = KeyLimits(*(max(each, 0) for each in (key.requests_per_minute, key.tokens_per_minute, key.concurrency)))
    return limits if any(limits) else None
