"""Which target a conversation prefers, so that it finds its beginning in that engine's cache. Pure.

A conversation is known by how it begins: the system's words and the first message of the user, as bytes; each turn
repeats them. It prefers the target that answered it last (`gateway.board`), or, when nobody remembers that, the first
of a rendezvous hash, which is the same in every worker and in every gateway: when a target comes or goes, only the
conversations that preferred it move. A short request that begins one prefers nobody, and goes where the load is least:
it is read as quickly as it would be found.

The body is searched, not parsed: the beginning ends with the first `}` after the first `"user"`, which stands inside
the first user message or at its end, in each turn at the same byte. A text that mentions these words in strings has
them escaped. What is found wrongly costs a cache hit and nothing else.
"""

from functools import lru_cache
from hashlib import blake2b
from math import log
from zlib import crc32

_SEARCH_BYTES = 256 << 10
_EDGE_BYTES = 1024
"""Hashed at each end of the beginning; its length is hashed too."""
_LONG_BYTES = 2048
"""Of a request that is worth finding the beginning of, though it is the first."""
_PROMPT_BYTES = 512
"""Of a plain prompt. A shorter one has nothing that is worth finding again."""

MASK = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15
MIX = 0xBF58476D1CE4E5B9


def read_beginning(body: bytes) -> int | None:
    """A number that is the same for all turns of a conversation; None: this request is none, or a short prompt."""
    begin = body.find(b'"messages"')
    if begin < 0:
        begin = body.find(b'"input"')
    if begin < 0:
        begin = body.find(b'"prompt"')
        end = begin + _PROMPT_BYTES
        return _hash(body, begin, end) if begin >= 0 and end < len(body) else None
    # Anthropic's, and Responses': the system's words stand beside the messages.
    system = body.find(b'"system"', 0, begin)
    if system >= 0:
        begin = system
    limit = begin + _SEARCH_BYTES
    user = body.find(b'"user"', begin, limit)
    if user < 0:
        return None
    end = body.find(b"}", user, user + _SEARCH_BYTES)
    return _hash(body, begin, end if end >= 0 else min(user + _SEARCH_BYTES, len(body)))


def is_worth_finding(body: bytes) -> bool:
    """Whether an engine's cache may hold what would take it long to read: a later turn, or a long text."""
    return len(body) >= _LONG_BYTES or b'"assistant"' in body


def _hash(body: bytes, begin: int, end: int) -> int:
    head_end = min(end, begin + _EDGE_BYTES)
    found = crc32(body[begin:head_end], end - begin)
    if end > head_end:
        found = crc32(body[max(head_end, end - _EDGE_BYTES) : end], found)
    return found * _ODD & MASK


@lru_cache(maxsize=8192)
def seed_of(target_id: str) -> int:
    """A target's own number: 64 bits, the same everywhere."""
    return int.from_bytes(blake2b(target_id.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def preference(beginning: int, seed: int) -> int:
    """How much a conversation prefers the target with this seed; 64 bits, as good as drawn by chance."""
    return (beginning ^ seed) * MIX & MASK


def weigh(preferred: int, weight: int) -> float:
    """A preference by which each target is first for its weight's share of the conversations."""
    return weight / -log((preferred + 1) / (MASK + 2))
