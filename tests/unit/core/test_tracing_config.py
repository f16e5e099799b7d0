"""Tracing in the config: what is wrong is named, what is right reaches the gateway, and secrets only in their file."""

import json
import stat
from pathlib import Path

import pytest

from cli.masking import mask
from core.api import TracingPolicy
from core.config.load import parse_config
from core.config.problem import ConfigErrors
from core.config.schema import Tracing
from core.paths import Layout
from daemon.routes import build_route_table
from daemon.tracing import describe_tracing, headers_path, keep_headers

PATH = Path("config.yaml")


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("{endpoint: 'localhost:4318'}", "tracing.endpoint: is no URL of a collector"),
        ("{endpoint: 'ftp://h/'}", "tracing.endpoint: is no URL of a collector"),
        ("{endpoint: 'http://h:99999'}", "tracing.endpoint: is no URL: "),
        ("{endpoint: 'http://h:0'}", "tracing.endpoint: is no URL of a collector"),
        ("{endpoint: 'http://[::1'}", "tracing.endpoint: is no URL: "),
        ("{endpoint: 'http://h/ x'}", "tracing.endpoint: is no URL: it has spaces"),
        ("{endpoint: 'http://user:word@h/'}", "tracing.endpoint: has more than scheme, host, port and path"),
        ("{endpoint: 'http://h/?token=x'}", "tracing.endpoint: has more than scheme, host, port and path"),
        ("{headers: {'a b': c}}", "tracing.headers.a b: is no name of a header"),
        ("{headers: {Content-Type: text/plain}}", "tracing.headers.Content-Type: is said by the gateway itself"),
        ('{headers: {x: "a\\r\\nb: c"}}', "tracing.headers.x: has characters that no header can carry"),
        ("{sampleRatio: 1.5}", "tracing.sampleRatio: "),
        ("{sampleRatio: -1}", "tracing.sampleRatio: "),
        ("{serviceName: ''}", "tracing.serviceName: "),
        ("{sampleRate: 1}", "tracing.sampleRate: unknown key"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(section: str, expected: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_config(f"tracing: {section}".encode(), PATH, {})
    assert [str(problem) for problem in caught.value.problems][0].startswith(expected)
    assert "word" not in str(caught.value.problems[0])


def test_without_the_section_there_is_nothing(tmp_path: Path) -> None:
    config = parse_config(b"", PATH, {}).config
    layout = Layout.under(tmp_path)
    assert describe_tracing(config.tracing, layout) == TracingPolicy()
    keep_headers(config.tracing, layout, gid=-1)
    assert not layout.keys.exists()


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
        ("https://otlp.example.org/own/path", "https://otlp.example.org/own/path"),
    ],
)
def test_an_endpoint_without_a_path_gets_the_usual_one(tmp_path: Path, endpoint: str, expected: str) -> None:
    assert describe_tracing(Tracing(endpoint=endpoint), Layout.under(tmp_path)).endpoint == expected


def test_headers_come_from_the_environment_and_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    text = (
        b"tracing: {endpoint: 'http://h:4318', headers: {authorization: 'Bearer ${TOKEN}'},"
        b" sampleRatio: 0.25, serviceName: ours}"
    )
    loaded = parse_config(text, PATH, {"TOKEN": "hidden-word"})
    layout, tracing = Layout.under(tmp_path), loaded.config.tracing
    policy = describe_tracing(tracing, layout)
    keep_headers(tracing, layout, gid=-1)
    table = build_route_table(loaded.config, {}, node="n", version=1, epoch="e", tracing=policy)
    assert (table.tracing.sample_ratio, table.tracing.service_name) == (0.25, "ours")
    assert "hidden-word" not in repr(table) and policy.headers_file == str(headers_path(layout))
    assert json.loads(headers_path(layout).read_text()) == {"authorization": "Bearer hidden-word"}
    assert stat.S_IMODE(headers_path(layout).stat().st_mode) == 0o640
    shown = mask({"tracing": {"headers": {"authorization": "Bearer hidden-word"}}}, loaded.references)
    assert "hidden-word" not in str(shown)
    # Another token is another table; none is no file.
    other = Tracing(endpoint=tracing.endpoint, headers={"authorization": "Bearer other"})
    assert describe_tracing(other, layout) != policy
    keep_headers(Tracing(endpoint=tracing.endpoint), layout, gid=-1)
    assert not headers_path(layout).exists()
