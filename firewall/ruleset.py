"""From the policy to the objects of our table, as libnftables' JSON names them (libnftables-json(5)). Pure.

The chains and rules are always the same; only the elements of the named sets depend on the policy. So a change of
policy changes elements alone, and the rules' counters go on counting.
"""

from collections.abc import Mapping

from firewall.elements import IPV4, IPV6, PORTS, Range, build_elements, build_members, network_ranges
from firewall.policy import Peer, Policy

Object = dict[str, object]
"""`{"rule": {…}}`: one object of a table, under the name of its kind."""

Command = dict[str, object]
"""`{"add": {"rule": {…}}}`."""

Counts = Mapping[str, tuple[int, int]]
"""Comment of a rule -> packets and bytes that it counted."""

FAMILY, TABLE = "inet", "llmgw"
_IN_TABLE = {"family": FAMILY, "table": TABLE}

PRIORITY = -10
"""Before `filter`, where other programs' rules stand: their counters then count only what we let through. A drop is
final in any order, and what we accept they may still drop."""

_GATEWAY, _PRIVATE = "gateway", "private"


def build_table(policy: Policy, counts: Counts | None = None) -> list[Object]:
    """Every object of the table, in the order in which they can be added."""
    return [{"table": {"family": FAMILY, "name": TABLE}}, *build_sets(policy), *_chains(), *_rules(counts or {})]


def build_sets(policy: Policy) -> list[Object]:
    """The named sets with their elements."""
    gateway = ((policy.gateway_port, policy.gateway_port),) if policy.gateway_port else ()
    return [
        _set("gateway_ports", PORTS, gateway),
        _set("clients4", IPV4, network_ranges(policy.clients, 4)),
        _set("clients6", IPV6, network_ranges(policy.clients, 6)),
        _set("private_ports", PORTS, policy.private_ports),
        _set("networks4", IPV4, network_ranges(policy.networks, 4)),
        _set("networks6", IPV6, network_ranges(policy.networks, 6)),
        _members("peers4", IPV4, [peer for peer in policy.peers if peer[0].version == 4]),
        _members("peers6", IPV6, [peer for peer in policy.peers if peer[0].version == 6]),
    ]


def _set(name: str, kind: str, ranges: tuple[Range, ...]) -> Object:
    body: Object = {**_IN_TABLE, "name": name, "type": kind, "flags": ["interval"]}
    if ranges:
        body["elem"] = build_elements(kind, ranges)
    return {"set": body}


def _members(name: str, kind: str, peers: list[Peer]) -> Object:
    """Single addresses, each with a comment that says whose it is."""
    body: Object = {**_IN_TABLE, "name": name, "type": kind}
    if peers:
        body["elem"] = build_members(kind, [(int(address), nodes) for address, nodes in peers])
    return {"set": body}


def _chains() -> list[Object]:
    hook = {"type": "filter", "hook": "input", "prio": PRIORITY, "policy": "accept"}
    return [
        {"chain": {**_IN_TABLE, "name": _GATEWAY}},
        {"chain": {**_IN_TABLE, "name": _PRIVATE}},
        {"chain": {**_IN_TABLE, "name": "input", **hook}},
    ]


def _rules(counts: Counts) -> list[Object]:
    def rule(chain: str, comment: str, match: Object | None, verdict: Object) -> Object:
        packets, size_bytes = counts.get(comment, (0, 0))
        counter: Object = {"counter": {"packets": packets, "bytes": size_bytes}}
        expressions = [counter, verdict] if match is None else [match, counter, verdict]
        return {"rule": {**_IN_TABLE, "chain": chain, "comment": comment, "expr": expressions}}

    accept: Object = {"accept": None}
    drop: Object = {"drop": None}
    return [
        rule("input", "llmgw: this machine itself", _match({"meta": {"key": "iifname"}}, "lo"), accept),
        rule("input", "llmgw: to the gateway", _match(_field("tcp", "dport"), "@gateway_ports"), _jump(_GATEWAY)),
        rule("input", "llmgw: to private ports", _match(_field("tcp", "dport"), "@private_ports"), _jump(_PRIVATE)),
        rule(_GATEWAY, "llmgw: clients, IPv4", _match(_field("ip", "saddr"), "@clients4"), accept),
        rule(_GATEWAY, "llmgw: clients, IPv6", _match(_field("ip6", "saddr"), "@clients6"), accept),
        rule(_GATEWAY, "llmgw: peers at the gateway, IPv4", _match(_field("ip", "saddr"), "@peers4"), accept),
        rule(_GATEWAY, "llmgw: peers at the gateway, IPv6", _match(_field("ip6", "saddr"), "@peers6"), accept),
        rule(_GATEWAY, "llmgw: no client", None, drop),
        rule(_PRIVATE, "llmgw: networks, IPv4", _match(_field("ip", "saddr"), "@networks4"), accept),
        rule(_PRIVATE, "llmgw: networks, IPv6", _match(_field("ip6", "saddr"), "@networks6"), accept),
        rule(_PRIVATE, "llmgw: peers, IPv4", _match(_field("ip", "saddr"), "@peers4"), accept),
        rule(_PRIVATE, "llmgw: peers, IPv6", _match(_field("ip6", "saddr"), "@peers6"), accept),
        rule(_PRIVATE, "llmgw: from elsewhere", None, drop),
    ]


def _match(left: Object, right: str) -> Object:
    return {"match": {"op": "==", "left": left, "right": right}}


def _field(protocol: str, field: str) -> Object:
    return {"payload": {"protocol": protocol, "field": field}}


def _jump(chain: str) -> Object:
    return {"jump": {"target": chain}}


def install_commands(objects: list[Object]) -> list[Command]:
    """Replace the whole table in one transaction, whether it is there or not.

    `delete` of a table that is not there fails, and `destroy` is not known to nftables 1.0.6: hence add, delete, add.
    """
    adds: list[Command] = [{"add": item} for item in objects]
    return [*remove_commands(), *adds]


def remove_commands() -> list[Command]:
    """Take the table away, whether it is there or not."""
    table: Object = {"table": {"family": FAMILY, "name": TABLE}}
    return [{"add": table}, {"delete": table}]


def element_commands(sets: list[Object]) -> list[Command]:
    """Give these sets their elements, in one transaction; rules and their counters stay."""
    commands: list[Command] = []
    for item in sets:
        body = item["set"]
        if not isinstance(body, dict):
            continue
        where: Object = {**_IN_TABLE, "name": body["name"]}
        commands.append({"flush": {"set": where}})
        if "elem" in body:
            commands.append({"add": {"element": {**where, "elem": body["elem"]}}})
    return commands
