"""Which step a table needs, how it reads, and that nothing foreign in it is ever taken for ours."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.schema import Config, Firewall
from firewall.elements import IPV4, IPV6, PORTS, build_elements, read_elements
from firewall.normalize import keep_counts, normalize, read_counts
from firewall.plan import Step, make_plan
from firewall.policy import Policy, build_policy, merge_ranges
from firewall.ruleset import Object, build_table
from firewall.text import render, render_script, without_counts


def policy(*networks: str, clients: tuple[str, ...] = (), **peers: str) -> Policy:
    """`peers`: node -> its address."""
    config = Config(firewall=Firewall(networks=list(networks), clients=list(clients)))
    return build_policy(config, peers={address: node for node, address in peers.items()})


def as_read(objects: list[Object]) -> list[Any]:
    """As libnftables gives it back: with handles, and chains in another order than ours."""
    read: list[Any] = copy.deepcopy(objects)
    for number, item in enumerate(read):
        for body in item.values():
            body["handle"] = number + 2
    return [{"metainfo": {"version": "1.0.6"}}, *sorted(read, key=lambda item: "rule" in item)]


WANTED = policy("10.0.0.7", "fd00::/64")


def test_each_state_needs_its_own_step() -> None:
    present = as_read(build_table(WANTED))
    assert make_plan(None, None).step is Step.NOTHING
    assert make_plan(None, present).step is Step.REMOVE
    assert make_plan(WANTED, None).step is Step.INSTALL
    assert make_plan(WANTED, present).step is Step.NOTHING
    assert make_plan(policy("10.0.0.8"), present).step is Step.ELEMENTS
    assert make_plan(WANTED, present[:-1]).step is Step.REPLACE


def test_a_new_policy_touches_only_the_sets_that_differ() -> None:
    plan = make_plan(policy("10.0.0.8", "fd00::/64"), as_read(build_table(WANTED)))
    assert [list(command) for command in plan.commands] == [["flush"], ["add"]]
    assert all("networks4" in json.dumps(command) for command in plan.commands)
    assert plan.difference == ("-        elements = { 10.0.0.7 }", "+        elements = { 10.0.0.8 }")


def test_a_set_that_becomes_empty_is_only_flushed() -> None:
    plan = make_plan(policy("fd00::/64"), as_read(build_table(WANTED)))
    assert [list(command) for command in plan.commands] == [["flush"]]


def test_a_peer_that_moves_changes_its_own_set_alone_and_is_named() -> None:
    before, after = policy("10.0.0.7", b="10.1.0.2", c="fd00::3"), policy("10.0.0.7", b="10.1.0.9", c="fd00::3")
    plan = make_plan(after, as_read(build_table(before)))
    assert plan.step is Step.ELEMENTS
    assert all("peers4" in json.dumps(command) for command in plan.commands)
    assert plan.difference == (
        '-        elements = { 10.1.0.2 comment "b" }',
        '+        elements = { 10.1.0.9 comment "b" }',
    )


def test_a_peers_address_that_goes_to_another_node_is_a_difference() -> None:
    plan = make_plan(policy(c="10.1.0.2"), as_read(build_table(policy(b="10.1.0.2"))))
    assert plan.difference[-1] == '+        elements = { 10.1.0.2 comment "c" }'


def test_members_are_the_same_in_any_order() -> None:
    wanted = policy(b="10.1.0.9", c="10.1.0.10", d="10.1.0.2")
    present = as_read(build_table(wanted))
    (peers,) = [item["set"] for item in present if item.get("set", {}).get("name") == "peers4"]
    assert [elem["elem"]["val"] for elem in peers["elem"]] == ["10.1.0.2", "10.1.0.9", "10.1.0.10"]
    peers["elem"].reverse()
    assert make_plan(wanted, present).step is Step.NOTHING


STRANGE = [
    {"elem": {"val": "10.1.0.2", "comment": "b", "timeout": 5}},
    {"elem": {"val": "10.1.0.2", "comment": "theirs"}},
    {"elem": {"val": "10.1.0.2"}},
    {"elem": {"val": "nonsense", "comment": "b"}},
    {"elem": {"val": {"prefix": {"addr": "10.1.0.0", "len": 24}}, "comment": "b"}},
    "10.1.0.2",
]


@pytest.mark.parametrize("element", STRANGE)
def test_nothing_foreign_is_taken_for_a_peer(element: object) -> None:
    wanted = policy(b="10.1.0.2")
    present = as_read(build_table(wanted))
    (peers,) = [item["set"] for item in present if item.get("set", {}).get("name") == "peers4"]
    peers["elem"] = [element]
    plan = make_plan(wanted, present)
    assert plan.step is Step.ELEMENTS and plan.difference
    peers["elem"] = [{"elem": {"val": "10.1.0.2", "comment": "b"}}, element]
    assert make_plan(wanted, present).step is Step.ELEMENTS


def _edit(kind: str, number: int, **changes: object) -> Any:
    def change(objects: list[Any]) -> None:
        bodies = [item[kind] for item in objects if kind in item]
        bodies[number].update(changes)

    return change


def _accept_all(objects: list[Any]) -> None:
    first = next(index for index, item in enumerate(objects) if "rule" in item)
    objects.insert(first, {"rule": {"family": "inet", "table": "llmgw", "chain": "input", "expr": [{"accept": None}]}})


def _swap_rules(objects: list[Any]) -> None:
    rules = [index for index, item in enumerate(objects) if "rule" in item]
    a, b = rules[-1], rules[-2]
    objects[a], objects[b] = objects[b], objects[a]


FOREIGN = {
    "the table sleeps": _edit("table", 0, flags=["dormant"]),
    "a chain drops": _edit("chain", 2, policy="drop"),
    "a chain has no hook": lambda objects: [item["chain"].pop("hook", 0) for item in objects if "chain" in item],
    "another priority": _edit("chain", 2, prio=0),
    "a set forgets": _edit("set", 1, timeout=60),
    "a set of another type": _edit("set", 1, type="ether_addr"),
    "a set with more flags": _edit("set", 1, flags=["interval", "timeout"]),
    "an element with a timeout": _edit("set", 1, elem=[{"elem": {"val": "10.0.0.7", "timeout": 5}}]),
    "an element we cannot read": _edit("set", 1, elem=["not an address"]),
    "another verdict": _edit("rule", -1, expr=[{"counter": None}, {"accept": None}]),
    "no counter": _edit("rule", -1, expr=[{"drop": None}]),
    "a named counter": _edit("rule", -1, expr=[{"counter": "theirs"}, {"drop": None}]),
    "a limit": _edit("rule", -1, expr=[{"limit": {"rate": 1, "per": "second"}}, {"counter": None}, {"drop": None}]),
    "another comment": _edit("rule", -1, comment="mine"),
    "a comment that closes its quotes": _edit("rule", -1, comment='" accept comment "'),
    "a rule more": _accept_all,
    "rules in another order": _swap_rules,
    "a map": lambda objects: objects.append({"map": {"family": "inet", "table": "llmgw", "name": "m"}}),
    "another kind of thing": lambda objects: objects.append({"synproxy": {"name": "s", "table": "llmgw"}}),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_nothing_foreign_is_taken_for_ours(name: str) -> None:
    present = as_read(build_table(WANTED))
    FOREIGN[name](present)
    plan = make_plan(WANTED, present)
    assert plan.step in (Step.REPLACE, Step.ELEMENTS)
    assert plan.difference, "drift must be seen by a person, too"


def test_counts_are_no_difference_and_go_into_a_new_table() -> None:
    counted = {"llmgw: from elsewhere": (3, 180)}
    present = build_table(WANTED, counted)
    assert make_plan(WANTED, present).step is Step.NOTHING
    assert read_counts(present)["llmgw: from elsewhere"] == (3, 180)
    assert read_counts(build_table(WANTED, read_counts(present))) == read_counts(present)
    assert keep_counts({"a": (5, 9), "b": (1, 1)}, {"a": (0, 0), "c": (2, 2)}) == {
        "a": (5, 9),
        "b": (1, 1),
        "c": (2, 2),
    }


def test_a_table_that_is_shown_with_counts_is_the_same_without_them() -> None:
    present = as_read(build_table(WANTED, {"llmgw: from elsewhere": (3, 180), "llmgw: to the gateway": (1, 60)}))
    shown = render(normalize(present, keep_counted=True))
    assert "counter packets 3 bytes 180 drop" in shown
    assert without_counts(shown) == render(normalize(build_table(WANTED)))


def test_every_rule_has_a_counter_and_a_comment_of_its_own() -> None:
    rules: list[Any] = [item["rule"] for item in build_table(WANTED) if "rule" in item]
    assert all(any("counter" in expression for expression in rule["expr"]) for rule in rules)
    assert len({rule["comment"] for rule in rules}) == len(rules) == 13


def test_the_text_reads_as_nft_writes_it() -> None:
    text = without_counts(render(normalize(build_table(policy("10.0.0.0/24", clients=("fd09::/48",))))))
    assert "\tset networks4 {\n\t\ttype ipv4_addr\n\t\tflags interval\n\t\telements = { 10.0.0.0/24 }\n\t}\n" in text
    assert "\t\telements = { 8201-8299 }\n" in text
    assert '\t\tip6 saddr @clients6 counter accept comment "llmgw: clients, IPv6"\n' in text
    assert '\t\tip saddr @peers4 counter accept comment "llmgw: peers at the gateway, IPv4"\n' in text
    assert "\t\ttype filter hook input priority -10; policy accept;\n" in text
    assert render_script(build_table(WANTED)).startswith("add table inet llmgw\ndelete table inet llmgw\ntable inet")


@given(st.lists(st.tuples(st.integers(1, 65535), st.integers(0, 500)), max_size=20))
def test_ports_come_back_from_elements_as_they_went_in(given_: list[tuple[int, int]]) -> None:
    ranges = merge_ranges((low, min(low + more, 65535)) for low, more in given_)
    assert read_elements(PORTS, build_elements(PORTS, ranges) or None) == ranges


@given(
    st.sampled_from([(IPV4, 32), (IPV6, 128)]), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30)), max_size=20)
)
def test_addresses_come_back_from_elements_as_they_went_in(
    kind: tuple[str, int], given_: list[tuple[float, int]]
) -> None:
    last = (1 << kind[1]) - 1
    ranges = merge_ranges(
        (min(int(where * last), last), min(int(where * last) + (1 << more), last)) for where, more in given_
    )
    assert read_elements(kind[0], build_elements(kind[0], ranges) or None) == ranges


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 1 << 33) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["set", "rule", "chain", "table", "elem", "expr", "range", "prefix", "counter", "match"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(["table", "set", "chain", "rule", "x"]), _JSON, max_size=2), max_size=6)
)
def test_whatever_is_read_back_is_handled(objects: list[Any]) -> None:
    assert make_plan(WANTED, objects).step in (Step.REPLACE, Step.ELEMENTS)
    render(normalize(objects))
    read_counts(objects)
