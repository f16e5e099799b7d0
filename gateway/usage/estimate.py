"""How many tokens a request cost whose engine did not say: it was cut short, or the engine does not count.

A prompt is as many tokens as a body of its size usually is, a stream as many as its events usually are, and what is
usual is learnt, model by model, from the requests whose engines did say. Before any did, a token is four bytes of a
text, and one event of a stream. Nothing is counted while a stream runs: of one that broke off, the number of events is
its size by the size of the events in its last bytes.
"""

_BYTES_PER_TOKEN = 4
_LARGE_BYTES = 128 << 10
"""From here on a body may be a picture's, and says little of its tokens: those are learnt apart."""
_EVENT = b"\ndata:"
_OPENING_EVENTS = 1
"""Events before the first token: who speaks."""
_OTHER_EVENTS = 4
"""Events of a whole stream that are no tokens: the opening, the reason of its end, the usage, `[DONE]`."""
_LEAST_EVENTS = 32
"""A shorter stream teaches nothing: too much of it is not tokens."""
_ENVELOPE_BYTES = 300
"""What stands around the text of an answer that is no stream."""
_ENOUGH = float(1 << 20)
"""Tokens after which the past counts half."""


class _Rate:
    """Tokens for so much of something."""

    __slots__ = ("amount", "tokens")

    def __init__(self) -> None:
        self.tokens = 0.0
        self.amount = 0.0

    def learn(self, tokens: int, amount: float) -> None:
        self.tokens += tokens
        self.amount += amount
        if self.tokens > _ENOUGH:
            self.halve()

    def halve(self) -> None:
        """Let the past count half."""
        self.tokens /= 2
        self.amount /= 2

    def apply(self, amount: float, usual: float) -> int:
        """`usual` tokens for each, where nothing was learnt."""
        return round(amount * (self.tokens / self.amount if self.amount else usual))


class _Rates:
    """One model's."""

    __slots__ = ("events", "large", "small")

    def __init__(self) -> None:
        self.small = _Rate()
        self.large = _Rate()
        self.events = _Rate()

    def of_request(self, size_bytes: int) -> _Rate:
        return self.small if size_bytes < _LARGE_BYTES else self.large


class Estimator:
    """What one worker has learnt of its models. There are no more of them than the route table has had."""

    def __init__(self) -> None:
        self._models: dict[str, _Rates] = {}

    def learn_prompt(self, model: str, request_bytes: int, tokens: int) -> None:
        """A request of this size was so many tokens. Called for every request, so it is written out."""
        rates = self._models.get(model)
        if rates is None:
            rates = self._of(model)
        rate = rates.small if request_bytes < _LARGE_BYTES else rates.large
        rate.tokens += tokens
        rate.amount += request_bytes
        if rate.tokens > _ENOUGH:
            rate.halve()

    def learn_stream(self, model: str, events: float, tokens: int) -> None:
        """A whole stream of so many events was so many tokens."""
        if events >= _LEAST_EVENTS:
            self._of(model).events.learn(tokens, events - _OTHER_EVENTS)

    def prompt(self, model: str, request_bytes: int) -> int:
        """Tokens of a request, at least one. A large one of which nothing is known counts as the largest small one."""
        rate = self._of(model).of_request(request_bytes)
        if rate.amount == 0:
            request_bytes = min(request_bytes, _LARGE_BYTES)
        return max(1, rate.apply(request_bytes, 1 / _BYTES_PER_TOKEN))

    def stream(self, model: str, events: float) -> int:
        """Tokens of what a stream has brought before it broke off."""
        return self._of(model).events.apply(max(0.0, events - _OPENING_EVENTS), 1.0)

    def answer(self, size_bytes: int) -> int:
        """Tokens of a whole answer that is no stream."""
        return max(0, size_bytes - _ENVELOPE_BYTES) // _BYTES_PER_TOKEN

    def _of(self, model: str) -> _Rates:
        found = self._models.get(model)
        if found is None:
            found = self._models[model] = _Rates()
        return found


def count_events(tail: bytes, size_bytes: int) -> float:
    """The events of a stream of this size that ends in `tail`: exact where the tail is all of it, or all are alike."""
    if len(tail) >= size_bytes:
        return float(tail.count(_EVENT) + tail.startswith(_EVENT[1:]))
    first, last = tail.find(_EVENT), tail.rfind(_EVENT)
    if first == last:
        return float(first >= 0)
    return size_bytes * (tail.count(_EVENT) - 1) / (last - first)
