"""`GET /gateway/metrics` and `GET /gateway/routing`: the same numbers for people and dashboards, as JSON. Pure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from core.api import UNLIMITED, RouteModel
from gateway.ejection import Standing
from gateway.metrics.layout import Number
from gateway.metrics.moment import Moment, TargetNow
from gateway.metrics.numbers import Histogram, Numbers, RequestNumbers

Json = dict[str, object]

_SUMS = {
    "promptTokens": Number.PROMPT_TOKENS,
    "cachedPromptTokens": Number.CACHED_TOKENS,
    "completionTokens": Number.COMPLETION_TOKENS,
    "estimatedTokens": Number.ESTIMATED_TOKENS,
    "wastedTokens": Number.WASTED_TOKENS,
    "cancelled": Number.CANCELLED,
    "retries": Number.RETRIES,
}


def describe_metrics(numbers: Numbers, moment: Moment, *, model: str, now_s: float) -> Json:
    """`GET /gateway/metrics`; `model` leaves out all others, empty: none. `now_s` is since the epoch."""
    requests = [each for each in numbers.requests if model in ("", each.model)]
    by_model: dict[str, list[RequestNumbers]] = {}
    for each in requests:
        by_model.setdefault(each.model, []).append(each)
    active = [now for now in moment.targets if not model or model in now.models]
    return {
        "object": "gateway.metrics",
        "generatedAt": _time(now_s),
        "since": _time(moment.began_at_s),
        "totals": _sum_up(requests),
        "models": [
            {"id": id_, **_sum_up(those), "targets": [_describe_pair(each) for each in those]}
            for id_, those in sorted(by_model.items())
        ],
        "refused": [
            {"model": refused, "code": code, "requests": count}
            for refused, code, count in numbers.refusals
            if model in ("", refused)
        ],
        "targets": [
            {
                "id": each.target,
                "failures": dict(each.failures),
                "ejections": dict(each.ejections),
                "readmissions": each.readmissions,
            }
            for each in numbers.targets
        ],
        "active": [{"target": now.target.id, "inFlight": now.in_flight, "waiting": now.waiting} for now in active],
        "gateway": {"workers": moment.workers, "residentBytes": moment.resident_bytes},
    }


def _sum_up(requests: Sequence[RequestNumbers]) -> Json:
    outcomes: dict[str, int] = {}
    statuses: dict[str, int] = {}
    for each in requests:
        for (status, outcome), count in each.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
            statuses[status] = statuses.get(status, 0) + count
    summed: Json = {"requests": sum(outcomes.values()), "statuses": statuses, "outcomes": outcomes}
    return summed | {name: sum(each.numbers[number] for each in requests) for name, number in _SUMS.items()}


def _describe_pair(each: RequestNumbers) -> Json:
    return {
        "id": each.target or None,
        **_sum_up([each]),
        "choices": dict(each.reasons),
        "durationSeconds": _describe_times(each.duration),
        "firstTokenSeconds": _describe_times(each.first_token),
        "interTokenSeconds": _describe_times(each.between_tokens),
        "queueSeconds": _describe_times(each.queue),
    }


def _describe_times(times: Histogram) -> Json | None:
    """Quantiles are as fine as the buckets."""
    if not times.count:
        return None
    return {
        "count": times.count,
        "mean": round(times.sum_s / times.count, 6),
        "p50": times.quantile_s(0.5),
        "p95": times.quantile_s(0.95),
    }


def describe_routing(moment: Moment) -> Json:
    """`GET /gateway/routing`."""
    targets = {now.target.id: now for now in moment.targets}
    aliases = {alias: model.id for model in moment.models for alias in model.aliases}
    return {
        "object": "gateway.routing",
        "version": moment.routes_version,
        "aliases": dict(sorted(aliases.items())),
        "models": [_describe_model(model, targets) for model in moment.models],
        "targetBackoffs": [
            {
                "target": now.target.id,
                "standing": now.standing.name.lower(),
                "remainingMs": round(1000 * max(now.out_for_s, now.rests_for_s)),
            }
            for now in moment.targets
            if now.standing is not Standing.GOOD
        ],
    }


def _describe_model(model: RouteModel, targets: Mapping[str, TargetNow]) -> Json:
    return {
        "id": model.id,
        "kind": model.kind,
        "advertise": model.advertise,
        "targets": [_describe_target(targets[target.id]) for target in model.targets if target.id in targets],
    }


def _describe_target(now: TargetNow) -> Json:
    target = now.target
    return {
        "id": target.id,
        "name": target.name or target.runtime or target.backend,
        "runtime": target.runtime or None,
        "backend": target.backend or None,
        "weight": target.weight,
        "ready": target.ready,
        "state": target.state,
        "reason": target.reason or None,
        "standing": now.standing.name.lower(),
        "outForSeconds": round(now.out_for_s, 1),
        "coolDowns": now.cool_downs,
        "restsForSeconds": round(now.rests_for_s, 1),
        "isProbed": now.is_probed,
        "slots": None if now.slots >= UNLIMITED else now.slots,
        "inFlight": now.in_flight,
        "waiting": now.waiting,
        "recentRequests": round(now.recent, 1),
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
