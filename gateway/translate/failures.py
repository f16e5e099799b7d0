"""The two ways in which a translation can end without a result."""

from gateway.errors import ApiError


class BadAnswer(Exception):
    """The engine's answer is not what its dialect promises. The text is for us; it may hold the engine's words."""


class EngineError(Exception):
    """The engine itself says, inside a stream that had begun well, that it failed. The text is what it said."""


def unsupported(what: str) -> ApiError:
    """A request that has no equal in the engine's dialect. Left out in silence it would change the answer."""
    return ApiError(400, "unsupported_content", f"The engine of this model speaks chat completions: {what}.")
