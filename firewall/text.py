"""A table's objects as the text that `nft -f` reads. Pure.

For people: `--dry-run`, `show`, `diff`, the log. What we never write ourselves (found in a table that somebody changed)
is shown as libnftables' JSON, whole, so that nothing of it is hidden.
"""

import json
import re
from collections.abc import Iterable, Mapping

from firewall.elements import show_element

_COUNTS = re.compile(r"\bcounter packets \d+ bytes \d+")
_SET_KEYS = {"family", "table", "name", "type", "flags", "elem", "handle"}
_CHAIN_KEYS = {"family", "table", "name", "type", "hook", "prio", "policy", "handle"}
_RULE_KEYS = {"family", "table", "chain", "comment", "expr", "handle"}
_TABLE_KEYS = {"family", "name", "handle"}


def render(objects: Iterable[Mapping[str, object]]) -> str:
    """The table in nft's own syntax, in the order of `objects`. Empty for none."""
    bodies = [(kind, body) for item in objects for kind, body in item.items() if isinstance(body, Mapping)]
    tables = [body for kind, body in bodies if kind == "table"]
    if not tables:
        return ""
    rules = [body for kind, body in bodies if kind == "rule"]
    lines = [f"table {tables[0].get('family')} {tables[0].get('name')} {{", *_unknown(tables[0], _TABLE_KEYS, "\t")]
    for kind, body in bodies:
        if kind == "set":
            lines += _set(body)
        elif kind == "chain":
            lines += _chain(body, [rule for rule in rules if rule.get("chain") == body.get("name")])
        elif kind not in ("table", "rule", "metainfo"):
            lines.append(f"\t{_json({kind: dict(body)})}")
    return "\n".join([*lines, "}"]) + "\n"


def render_script(objects: Iterable[Mapping[str, object]]) -> str:
    """A script for `nft -f` that puts the table in place of the one that is there, in one transaction."""
    return render_removal() + render(objects)


def render_removal() -> str:
    """A script for `nft -f` that takes the table away, whether it is there or not."""
    return "add table inet llmgw\ndelete table inet llmgw\n"


def without_counts(text: str) -> str:
    """The text with what the counters counted left out."""
    return _COUNTS.sub("counter", text)


def _set(body: Mapping[str, object]) -> list[str]:
    lines = [f"\tset {body.get('name')} {{", f"\t\ttype {body.get('type')}"]
    flags = body.get("flags")
    if isinstance(flags, list):
        lines.append(f"\t\tflags {','.join(map(str, flags))}")
    elements = body.get("elem")
    if isinstance(elements, list) and elements:
        shown = ", ".join(show_element(element) or _json(element) for element in elements)
        lines.append(f"\t\telements = {{ {shown} }}")
    return [*lines, *_unknown(body, _SET_KEYS, "\t\t"), "\t}"]


def _chain(body: Mapping[str, object], rules: list[Mapping[str, object]]) -> list[str]:
    lines = [f"\tchain {body.get('name')} {{"]
    if "hook" in body:
        hook = f"type {body.get('type')} hook {body.get('hook')} priority {body.get('prio')}"
        lines.append(f"\t\t{hook}; policy {body.get('policy')};")
    lines += _unknown(body, _CHAIN_KEYS, "\t\t")
    return [*lines, *(f"\t\t{_rule(rule)}" for rule in rules), "\t}"]


def _rule(body: Mapping[str, object]) -> str:
    expressions = body.get("expr")
    words = [_expression(e) for e in expressions] if isinstance(expressions, list) else [_json(expressions)]
    if "comment" in body:
        words.append(f"comment {json.dumps(body['comment'], ensure_ascii=False)}")
    return " ".join([*words, *_unknown(body, _RULE_KEYS, "")])


def _expression(expression: object) -> str:
    match expression:
        case {"match": {"op": "==", "left": left, "right": str(right)}, **rest} if not rest:
            return _match(left, right) or _json(expression)
        case {"counter": None}:
            return "counter"
        case {"counter": {"packets": int(packets), "bytes": int(size_bytes)}}:
            return f"counter packets {packets} bytes {size_bytes}"
        case {"jump": {"target": str(chain)}}:
            return f"jump {chain}"
        case {"accept": None}:
            return "accept"
        case {"drop": None}:
            return "drop"
    return _json(expression)


def _match(left: object, right: str) -> str:
    match left:
        case {"meta": {"key": "iifname"}}:
            return f"iifname {json.dumps(right)}"
        case {"payload": {"protocol": str(protocol), "field": str(field)}} if right.startswith("@"):
            return f"{protocol} {field} {right}"
    return ""


def _unknown(body: Mapping[str, object], known: set[str], indent: str) -> list[str]:
    rest = {key: value for key, value in body.items() if key not in known}
    return [f"{indent}{_json(rest)}"] if rest else []


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
