"""The metrics as Prometheus reads them: families with HELP and TYPE, written by Prometheus' own library.

Labels are bounded by the route table (`gateway.metrics.counting`). What the daemon knows of runtimes and memory is
there while it answers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from core import VERSION
from core.api import NodeState
from core.runtime import RuntimeState
from gateway.ejection import Standing
from gateway.metrics.layout import Number, SpanFate
from gateway.metrics.moment import Moment, TargetNow
from gateway.metrics.numbers import Histogram, Numbers, RequestNumbers

_MODEL = ("model", "target")
_COUNTERS: tuple[tuple[str, str, Number], ...] = (
    ("llmgw_prompt_tokens", "Tokens that engines read, cached ones included.", Number.PROMPT_TOKENS),
    ("llmgw_cached_prompt_tokens", "Of these, what engines had in their caches.", Number.CACHED_TOKENS),
    ("llmgw_completion_tokens", "Tokens that engines wrote.", Number.COMPLETION_TOKENS),
    ("llmgw_estimated_tokens", "Of both, those that no engine told.", Number.ESTIMATED_TOKENS),
    ("llmgw_wasted_tokens", "Tokens that were written for answers which came to no end.", Number.WASTED_TOKENS),
    ("llmgw_cancelled", "Requests whose client left before the end of its answer.", Number.CANCELLED),
    ("llmgw_retries", "Times that a request was sent to another target.", Number.RETRIES),
)  # fmt: skip
_HISTOGRAMS: tuple[tuple[str, str, Callable[[RequestNumbers], Histogram]], ...] = (
    ("llmgw_request_duration_seconds", "From a request to the end of its answer.", lambda each: each.duration),
    (
        "llmgw_time_to_first_token_seconds",
        "From when an engine was asked to the first byte of its stream.",
        lambda each: each.first_token,
    ),
    (
        "llmgw_inter_token_seconds",
        "Mean time between two tokens of a stream, from its first byte to its last; one observation for each stream.",
        lambda each: each.between_tokens,
    ),
    ("llmgw_queue_seconds", "Time that requests waited for a slot.", lambda each: each.queue),
)
_TARGET_GAUGES: tuple[tuple[str, str, Callable[[TargetNow], float]], ...] = (
    ("llmgw_target_in_flight", "Requests that the target works on.", lambda now: now.in_flight),
    ("llmgw_target_waiting", "Requests that wait for a slot of the target.", lambda now: now.waiting),
    ("llmgw_target_slots", "Requests that the target may work on at once.", lambda now: now.slots),
    ("llmgw_target_ready", "Whether the daemon finds the target ready.", lambda now: now.target.ready),
)


def build_families(numbers: Numbers, moment: Moment, node: NodeState | None) -> Iterator[Metric]:
    """All of them."""
    yield from _request_families(numbers.requests)
    refused = CounterMetricFamily(
        "llmgw_refused", "Requests that the gateway itself answered with an error.", labels=("model", "code")
    )
    for model, code, count in numbers.refusals:
        refused.add_metric((model, code), count)
    yield refused
    yield from _target_families(numbers, moment.targets)
    yield from _span_families(numbers)
    yield from _process_families(moment)
    if node is not None:
        yield from _node_families(node)


def render(families: Iterable[Metric], accept: str) -> tuple[bytes, str]:
    """As text, and its content type; in OpenMetrics' words for who accepts them."""
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(families))
    return encode(registry), content_type


class _Given(Collector):
    """Families that were made already, as the library wants them."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._families


def _request_families(requests: Sequence[RequestNumbers]) -> Iterator[Metric]:
    counted = CounterMetricFamily(
        "llmgw_requests",
        "Requests that are over, by the class of their status and how they ended.",
        labels=(*_MODEL, "status", "outcome"),
    )
    chosen = CounterMetricFamily(
        "llmgw_routing_choices", "Why a request's first target was its first.", labels=(*_MODEL, "why")
    )
    for each in requests:
        for (status, outcome), count in each.outcomes.items():
            counted.add_metric((each.model, each.target, status, outcome), count)
        for why, count in each.reasons.items():
            chosen.add_metric((each.model, each.target, why), count)
    yield counted
    yield chosen
    for name, text, number in _COUNTERS:
        counter = CounterMetricFamily(name, text, labels=_MODEL)
        for each in requests:
            counter.add_metric((each.model, each.target), each.numbers[number])
        yield counter
    for name, text, find in _HISTOGRAMS:
        histogram = HistogramMetricFamily(name, text, labels=_MODEL)
        for each in requests:
            found = find(each)
            if found.count:
                histogram.add_metric((each.model, each.target), buckets=found.buckets, sum_value=found.sum_s)
        yield histogram


def _target_families(numbers: Numbers, targets: Sequence[TargetNow]) -> Iterator[Metric]:
    failures = CounterMetricFamily("llmgw_target_failures", "Failed attempts.", labels=("target", "cause"))
    ejections = CounterMetricFamily(
        "llmgw_target_ejections", "Times that the target was taken out of rotation.", labels=("target", "cause")
    )
    readmissions = CounterMetricFamily("llmgw_target_readmissions", "Times that it came back.", labels=("target",))
    for each in numbers.targets:
        for cause, count in each.failures.items():
            failures.add_metric((each.target, cause), count)
        for cause, count in each.ejections.items():
            ejections.add_metric((each.target, cause), count)
        readmissions.add_metric((each.target,), each.readmissions)
    yield from (failures, ejections, readmissions)
    for name, text, find in _TARGET_GAUGES:
        gauge = GaugeMetricFamily(name, text, labels=("target",))
        for now in targets:
            gauge.add_metric((now.target.id,), find(now))
        yield gauge
    standings = GaugeMetricFamily(
        "llmgw_target_standing",
        "1 for how the target stands in routing, 0 for the others.",
        labels=("target", "standing"),
    )
    for now in targets:
        for standing in Standing:
            standings.add_metric((now.target.id, standing.name.lower()), now.standing is standing)
    yield standings


def _span_families(numbers: Numbers) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "llmgw_trace_spans_sent", "Spans that the collector of traces took.", value=numbers.spans[SpanFate.SENT]
    )
    dropped = CounterMetricFamily("llmgw_trace_spans_dropped", "Spans that it did not get.", labels=("cause",))
    for fate, count in numbers.spans.items():
        if fate is not SpanFate.SENT:
            dropped.add_metric((fate.name.lower(),), count)
    yield dropped


def _process_families(moment: Moment) -> Iterator[Metric]:
    yield InfoMetricFamily("llmgw_build", "What runs.", value={"version": VERSION})
    for name, text, value in (
        ("llmgw_gateway_workers", "The gateway's processes.", moment.workers),
        ("llmgw_gateway_start_time_seconds", "When the gateway began, since the epoch.", moment.began_at_s),
        ("llmgw_gateway_resident_memory_bytes", "Memory of its processes.", moment.resident_bytes),
        ("llmgw_gateway_routes_version", "Version of the route table that this worker uses.", moment.routes_version),
        ("llmgw_gateway_daemon_connected", "Whether this worker follows the daemon.", moment.daemon_connected),
    ):
        yield GaugeMetricFamily(name, text, value=value)


def _node_families(node: NodeState) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "llmgw_runtime_state", "1 for the runtime's state, 0 for the others.", labels=("runtime", "state")
    )
    restarts = GaugeMetricFamily("llmgw_runtime_restarts", "Restarts of its unit.", labels=("runtime",))
    memory = GaugeMetricFamily("llmgw_runtime_memory_bytes", "Memory of the runtime.", labels=("runtime",))
    for runtime in node.runtimes:
        for state in RuntimeState:
            states.add_metric((runtime.id, state.value), state.value == runtime.state)
        restarts.add_metric((runtime.id,), runtime.restarts)
        if runtime.memory_mib is not None:
            memory.add_metric((runtime.id,), runtime.memory_mib << 20)
    yield from (states, restarts, memory)
    for name, text, value in (
        ("llmgw_node_memory_bytes", "Memory of the machine.", node.memory_total_mib),
        ("llmgw_node_memory_available_bytes", "What of it is available.", node.memory_available_mib),
    ):
        if value is not None:
            yield GaugeMetricFamily(name, text, value=value << 20)
