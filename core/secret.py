"""Secrets are a type that prints `…`, so that no log line, error or repr can carry one by accident."""

import hmac


class Secret:
    """A key or token. `reveal()` is the only way to its value, and greppable."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The secret itself, for the one place that sends or stores it."""
        return self._value

    def matches(self, candidate: str) -> bool:
        """Whether both are equal, in time that does not depend on where they differ."""
        return hmac.compare_digest(self._value.encode(), candidate.encode())

    def __repr__(self) -> str:
        return "Secret(…)"

    def __str__(self) -> str:
        return "…"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.matches(other._value)

    def __hash__(self) -> int:
        return hash(self._value)
