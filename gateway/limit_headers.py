"""How a client reads the limits of its key and what is left of them, in the words of the API that it speaks. Pure.

OpenAI says `x-ratelimit-remaining-requests`, Anthropic `anthropic-ratelimit-requests-remaining`. When there will be
room again is said by refusals only, where somebody waits for it; `Retry-After` says the same.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from gateway.grant import KeyLimits


class Words(NamedTuple):
    """One API's names, with `{what}` (limit, remaining, reset) and `{kind}` (requests, tokens) to be filled in."""

    name: str
    is_reset_a_date: bool


OPENAI = Words("x-ratelimit-{what}-{kind}", is_reset_a_date=False)
ANTHROPIC = Words("anthropic-ratelimit-{kind}-{what}", is_reset_a_date=True)


class Standing(NamedTuple):
    """What is taken of a key's limits in the last minute, this request included."""

    requests: int
    tokens: int


def render_standing(words: Words, limits: KeyLimits, standing: Standing) -> bytes:
    """Header lines for an answer; none for limits that the key does not have."""
    return _template(words, limits) % _remaining(limits, standing)


def list_standing(
    words: Words, limits: KeyLimits, standing: Standing, *, kind: str, wait_s: int, now_s: float
) -> list[tuple[str, str]]:
    """The same for a refusal, and when there is room again for what there was none of (`requests`, `tokens`)."""
    lines = render_standing(words, limits, standing).decode("ascii").split("\r\n")[:-1]
    headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
    if kind:
        date = datetime.fromtimestamp(now_s + wait_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        headers.append((words.name.format(what="reset", kind=kind), date if words.is_reset_a_date else f"{wait_s}s"))
    return headers


@lru_cache(maxsize=256)
def _template(words: Words, limits: KeyLimits) -> bytes:
    lines = []
    for kind, limit in (("requests", limits.requests), ("tokens", limits.tokens)):
        if limit:
            lines.append(f"{words.name.format(what='limit', kind=kind)}: {limit}\r\n")
            lines.append(f"{words.name.format(what='remaining', kind=kind)}: %d\r\n")
    return "".join(lines).encode("ascii")


def _remaining(limits: KeyLimits, standing: Standing) -> tuple[int, ...]:
    pairs = ((limits.requests, standing.requests), (limits.tokens, standing.tokens))
    return tuple(max(limit - taken, 0) for limit, taken in pairs if limit)
