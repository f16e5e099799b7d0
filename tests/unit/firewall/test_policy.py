"""From the config to the policy, and what counts as an address."""

import ipaddress

import pytest

from core.config.check import check
from core.config.schema import Config, Firewall, Ports, Runtime, Server
from core.networks import parse_network
from firewall.policy import EVERYBODY, build_policy, merge_ranges, without_port

REFUSED = {
    "": "no address",
    "localhost": "no address",
    "10.0.0.256": "no address",
    "10.0.0.1/33": "no address",
    "10.0.0.0/-1": "no address",
    "10.0.0.0/": "no address",
    "10.0.0.1,10.0.0.2": "no address",
    "10.0.0.1-10.0.0.9": "no address",
    "10.0.0.1 ": "no address",
    "10.0.0.0/24\n": "no address",
    "010.0.0.1": "no address",
    "10.0.0": "no address",
    "1": "no address",
    "٣.0.0.1": "no address",
    "@networks4": "no address",
    "}; flush ruleset": "no address",
    "x" * 65: "no address",
    "10.0.0.0/255.255.255.0": "did you mean|as in 10.0.0.0/24",
    "10.0.0.7/24": "did you mean 10.0.0.0/24",
    "fd00::1/64": "did you mean fd00::/64",
    "fe80::1%eth0": "names an interface",
    "::ffff:10.0.0.1": "IPv4 address as such",
    "::ffff:10.0.0.0/104": "IPv4 address as such",
    "224.0.0.1": "multicast",
    "ff02::1": "multicast",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_network_is_refused_with_what_was_meant(text: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[text]):
        parse_network(text)


@pytest.mark.parametrize("text", ["10.0.0.7", "10.0.0.0/24", "0.0.0.0/0", "::1", "fd00::/8", "2001:DB8::/32", "::/0"])
def test_addresses_and_networks_of_both_families_are_read(text: str) -> None:
    assert parse_network(text) == ipaddress.ip_network(text)


def test_a_config_with_a_wrong_network_names_its_place() -> None:
    config = Config(firewall=Firewall(networks=["10.0.0.1", "10.0.0.7/24"], clients=["nobody"]))
    assert [problem.path for problem in check(config)] == ["firewall.networks[1]", "firewall.clients[0]"]


RANGES = [
    ([], ()),
    ([(1, 1)], ((1, 1),)),
    ([(5, 9), (1, 4)], ((1, 9),)),
    ([(1, 3), (5, 9)], ((1, 3), (5, 9))),
    ([(1, 9), (2, 3)], ((1, 9),)),
    ([(8201, 8299), (8250, 8250), (9000, 9000), (8300, 8300)], ((8201, 8300), (9000, 9000))),
]


@pytest.mark.parametrize(("given", "merged"), RANGES)
def test_ranges_that_overlap_or_touch_become_one(
    given: list[tuple[int, int]], merged: tuple[tuple[int, int], ...]
) -> None:
    assert merge_ranges(given) == merged


@pytest.mark.parametrize(
    ("port", "left"), [(1, ((2, 9),)), (9, ((1, 8),)), (5, ((1, 4), (6, 9))), (0, ((1, 9),)), (10, ((1, 9),))]
)
def test_the_gateways_port_is_never_private(port: int, left: tuple[tuple[int, int], ...]) -> None:
    assert without_port([(1, 9)], port) == left


def test_the_policy_closes_every_port_that_an_engine_has_or_may_get() -> None:
    config = Config(
        server=Server(port=8100),
        ports=Ports(backends=(8201, 8210)),
        runtimes={"a": Runtime(port=9000, command=["/bin/a"]), "b": Runtime(command=["/bin/b"])},
        firewall=Firewall(networks=["10.0.0.0/25", "10.0.0.128/25", "10.0.0.9", "fd00::7"]),
    )
    policy = build_policy(config, engine_ports=[8205, 7000], peers={"10.5.0.1": "b", "fd00::9": "c", "10.0.0.9": "d"})
    assert policy.private_ports == ((7000, 7000), (8201, 8210), (9000, 9000))
    assert [str(network) for network in policy.networks] == ["10.0.0.0/24", "fd00::7/128"]
    assert [(str(address), nodes) for address, nodes in policy.peers] == [
        ("10.0.0.9", "d"), ("10.5.0.1", "b"), ("fd00::9", "c"),
    ]  # fmt: skip
    assert (policy.gateway_port, policy.clients) == (8100, EVERYBODY)
