"""The tokens of a request that is over, written into its record: told by the engine, or estimated.

What an engine told of an answer that came to its end is taken as it is. Of one that was cut short only a count that
covers it so far is; else its prompt is estimated by the size of the request, its answer by what has been seen of it,
and the record says so. An engine's refusal costs nothing, and neither does a request that no engine got.
"""

from core.http.plan import RelayOutcome
from core.http.verdict import Ended
from gateway.ending import RequestRecord
from gateway.table import CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES, RESPONSES
from gateway.usage.estimate import Estimator, count_events
from gateway.usage.told import find_told

_WRITE = frozenset({CHAT, COMPLETIONS, MESSAGES, RESPONSES})
"""Paths whose engines write tokens."""
_READ = _WRITE | {EMBEDDINGS, "/v1/rerank", "/v1/score"}
"""Paths whose engines at least read some. On any other, only what is told counts."""


class Accountant:
    """Fills the records of one worker."""

    def __init__(self) -> None:
        self._estimator = Estimator()

    def fill(self, record: RequestRecord, outcome: RelayOutcome) -> None:
        """Write the tokens into the record of a request that an engine has got."""
        status = outcome.status
        if status is None:
            if outcome.ended is Ended.CLIENT_GONE and outcome.was_sent and record.path in _READ:
                record.prompt_tokens = self._estimator.prompt(record.served, record.request_bytes)
                record.is_estimated = True
            return
        if status >= 400:
            return
        told = find_told(outcome.begin, outcome.tail)
        is_whole = outcome.ended is Ended.COMPLETE
        if told.prompt is not None:
            record.prompt_tokens = told.prompt
            record.cached_tokens = told.cached
            self._estimator.learn_prompt(record.served, record.request_bytes, told.prompt)
        elif record.path in _READ:
            record.prompt_tokens = self._estimator.prompt(record.served, record.request_bytes)
            record.is_estimated = True
        if told.completion is not None and (is_whole or told.is_total):
            record.completion_tokens = told.completion
            if record.stream and is_whole:
                events = count_events(outcome.tail, outcome.size_bytes)
                self._estimator.learn_stream(record.served, events, told.completion)
        elif record.path in _WRITE:
            record.completion_tokens = max(told.completion or 0, self._seen(record, outcome))
            record.is_estimated = True

    def _seen(self, record: RequestRecord, outcome: RelayOutcome) -> int:
        if record.stream:
            return self._estimator.stream(record.served, count_events(outcome.tail, outcome.size_bytes))
        return self._estimator.answer(outcome.size_bytes)
