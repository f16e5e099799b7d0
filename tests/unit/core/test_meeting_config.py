"""TLS, proxies and web pages in the config: what is wrong is named, and what is right reaches the route table."""

from pathlib import Path

import pytest

from core.config.load import parse_config
from core.config.problem import ConfigErrors
from daemon.routes import build_route_table

PATH = Path("config.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("server: {tls: {certFile: /c.pem}}", "server.tls.keyFile: is missing"),
        ("server: {tls: {keyFile: /k.pem}}", "server.tls.certFile: is missing"),
        ("server: {tls: {certFile: c.pem, keyFile: /k.pem}}", "server.tls.certFile: c.pem is no absolute path"),
        ("server: {trustedProxies: [proxy.example.org]}", "server.trustedProxies[0]: "),
        ("server: {trustedProxies: [unix, 10.0.0.1/8]}", "server.trustedProxies[1]: "),
        ("server: {corsOrigins: [app.example.org]}", "server.corsOrigins[0]: "),
        ("server: {corsOrigins: ['https://app.example.org/']}", "server.corsOrigins[0]: "),
        ("server: {corsOrigins: ['https://*.example.org']}", "server.corsOrigins[0]: "),
        ("server: {corsOrigins: ['null']}", "server.corsOrigins[0]: "),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, expected: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_config(text.encode(), PATH, {})
    assert [str(problem) for problem in caught.value.problems][0].startswith(expected)


def test_what_is_right_reaches_the_gateway() -> None:
    text = (
        b"server: {tls: {certFile: /c.pem, keyFile: /k.pem}, trustedProxies: [unix, 10.0.0.0/8],"
        b" corsOrigins: ['https://app.example.org', 'http://[::1]:3000']}"
    )
    config = parse_config(text, PATH, {}).config
    policy = build_route_table(config, {}, node="n", version=1, epoch="e").server
    assert (policy.tls_cert_file, policy.tls_key_file) == ("/c.pem", "/k.pem")
    assert policy.trusted_proxies == ["unix", "10.0.0.0/8"]
    assert policy.cors_origins == ["https://app.example.org", "http://[::1]:3000"]


def test_the_reference_systems_setting_allows_every_page() -> None:
    config = parse_config(b"security: {allowWildcardCors: true}", PATH, {}).config
    assert build_route_table(config, {}, node="n", version=1, epoch="e").server.cors_origins == ["*"]
