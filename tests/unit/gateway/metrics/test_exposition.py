"""The text that Prometheus reads, by its own parsers: valid, bounded, and whatever names models have."""

import json
import re

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gateway.ejection import Standing
from gateway.metrics.exposition import build_families, render
from gateway.metrics.moment import Moment, TargetNow
from gateway.metrics.views import describe_metrics, describe_routing
from tests.fakes.daemon_socket import plain_state
from tests.unit.gateway.metrics.test_counting import Desk, make_record
from tests.unit.gateway.tables import model, target

HOSTILE = 'a"b\\c\nd{e="f"} 1\n# TYPE x counter\nüß\x00'
NAMES = ["m", HOSTILE, "", "org/model:tag", "x" * 500]


def make_moment(*standings: Standing) -> Moment:
    """Two models at as many targets as there are standings."""
    targets = [target(f"n/t{number}", weight=number + 1) for number in range(len(standings))]
    models = (model("m", *targets, aliases=("alias",)), model("other", *targets[:1]))
    return Moment(
        models=models,
        targets=tuple(
            TargetNow(
                target=each, models=("m",), standing=standing, in_flight=3, waiting=1, slots=4, recent=2.5,
                out_for_s=4.2 if standing is Standing.OUT else 0.0, cool_downs=2 if standing is Standing.OUT else 0,
                rests_for_s=1.5 if standing is Standing.RESTING else 0.0, is_probed=False,
            )
            for each, standing in zip(targets, standings, strict=True)
        ),
        routes_version=7, daemon_connected=True, workers=2, resident_bytes=1 << 20, began_at_s=1_700_000_000,
    )  # fmt: skip


def counted(name: str = "m") -> Desk:
    desk = Desk()
    desk.counting.request_ended(make_record(served=name, prompt_tokens=5, completion_tokens=3))
    desk.counting.request_ended(
        make_record(served=name, stream=True, completion_tokens=11, first_data_s=0.2, relay_s=1.2)
    )
    desk.counting.request_ended(make_record(served=name, status=503, code="busy", ended="refused"))
    desk.counting.ejected(name, "connect_failed", 5.0, "")
    return desk


def text_of(desk: Desk, accept: str = "") -> tuple[str, str]:
    families = build_families(desk.numbers(), make_moment(Standing.GOOD, Standing.OUT), plain_state())
    data, content_type = render(families, accept)
    return data.decode(), content_type


@pytest.mark.parametrize("name", NAMES)
def test_the_text_is_valid_by_prometheus_own_parser(name: str) -> None:
    text, content_type = text_of(counted(name))
    assert content_type.startswith("text/plain; version=")
    families = list(parse_text(text))
    assert all(family.documentation and family.type != "unknown" for family in families)
    assert len({family.name for family in families}) == len(families)
    samples = {(sample.name, sample.labels.get("outcome")): sample for family in families for sample in family.samples}
    found = samples["llmgw_requests_total", "complete"]
    assert (found.labels["model"], found.value) == (name or "(unknown)", 2)


def test_who_accepts_openmetrics_gets_it() -> None:
    text, content_type = text_of(counted(), "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text") and text.endswith("# EOF\n")
    names = {family.name for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]
    assert names >= {"llmgw_requests", "llmgw_request_duration_seconds"}


def test_every_sample_has_help_and_type_before_it() -> None:
    text, _ = text_of(counted())
    told: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            told.add(line.split()[2])
        elif not line.startswith("#"):
            name = re.sub("_(bucket|sum|count)$", "", line.partition("{")[0].partition(" ")[0])
            assert name in told, line
    assert text.count("# HELP ") == text.count("# TYPE ") == len(told)


def test_a_histogram_is_cumulative_and_ends_with_its_count() -> None:
    text, _ = text_of(counted())
    (family,) = (each for each in parse_text(text) if each.name == "llmgw_request_duration_seconds")
    buckets = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
    count = next(sample.value for sample in family.samples if sample.name.endswith("_count"))
    assert buckets == sorted(buckets) and buckets[-1] == count == 3


def test_without_the_daemon_the_rest_is_told() -> None:
    data, _ = render(build_families(counted().numbers(), make_moment(Standing.GOOD), None), "")
    names = {family.name for family in parse_text(data.decode())}
    assert "llmgw_requests" in names and not any(name.startswith("llmgw_runtime") for name in names)


def test_the_json_view_sums_up_and_can_be_asked_for_one_model() -> None:
    desk = counted()
    desk.counting.request_ended(make_record(served="other"))
    moment = make_moment(Standing.GOOD)
    everything = json.loads(json.dumps(describe_metrics(desk.numbers(), moment, model="", now_s=1_700_000_060.0)))
    assert (everything["totals"]["requests"], everything["since"]) == (4, "2023-11-14T22:13:20Z")
    assert [each["id"] for each in everything["models"]] == ["m", "other"]
    one = json.loads(json.dumps(describe_metrics(desk.numbers(), moment, model="other", now_s=0.0)))
    assert (one["totals"]["requests"], [each["id"] for each in one["models"]], one["refused"]) == (1, ["other"], [])
    (at,) = everything["models"][0]["targets"]
    assert at["interTokenSeconds"]["mean"] == pytest.approx(0.1) and at["choices"] == {"only": 3}


def test_routing_is_described_with_what_is_held_against_whom() -> None:
    told = json.loads(json.dumps(describe_routing(make_moment(Standing.GOOD, Standing.OUT, Standing.RESTING))))
    assert told["aliases"] == {"alias": "m"}
    standings = [(each["id"], each["standing"], each["weight"]) for each in told["models"][0]["targets"]]
    assert standings == [("n/t0", "good", 1), ("n/t1", "out", 2), ("n/t2", "resting", 3)]
    assert told["targetBackoffs"] == [
        {"target": "n/t1", "standing": "out", "remainingMs": 4200},
        {"target": "n/t2", "standing": "resting", "remainingMs": 1500},
    ]
