"""What was read back, made comparable with what was built. Pure.

Handles and counts differ by nature, elements are written differently, chains come in another order. All else that
differs is drift, things that we do not understand first of all: they stay as they are, and so are never equal.
"""

import difflib
from collections.abc import Iterable, Mapping

from firewall.elements import build_elements, build_members, read_elements, read_members
from firewall.ruleset import Counts, Object
from firewall.text import render

_ORDER = ("table", "set", "chain", "rule")


def normalize(objects: Iterable[Mapping[str, object]], *, keep_counted: bool = False) -> list[Object]:
    """Our table in its one form: table, sets and chains by name, rules by chain and in their order.

    With `keep_counted` it still says what the rules have counted: for people, not for comparing.
    """
    known: list[tuple[int, str, Object]] = []
    for item in objects:
        for kind, body in item.items():
            if kind == "metainfo" or not isinstance(body, Mapping):
                continue
            rank = _ORDER.index(kind) if kind in _ORDER else len(_ORDER)
            key = str(body.get("chain" if kind == "rule" else "name", ""))
            known.append((rank, key, {kind: _body(kind, body, keep_counted)}))
    return [item for _, _, item in sorted(known, key=lambda entry: entry[:2])]


def _body(kind: str, body: Mapping[str, object], keep_counted: bool) -> Object:
    kept = {key: value for key, value in body.items() if key != "handle"}
    if kind == "set":
        set_type, elements = str(body.get("type")), body.get("elem")
        if (ranges := read_elements(set_type, elements)) is not None:
            kept.pop("elem", None)
            if ranges:
                kept["elem"] = build_elements(set_type, ranges)
        elif (members := read_members(set_type, elements)) is not None:
            kept["elem"] = build_members(set_type, members)
    if kind == "rule" and not keep_counted and isinstance(expressions := body.get("expr"), list):
        kept["expr"] = [_uncounted(expression) for expression in expressions]
    return kept


def _uncounted(expression: object) -> object:
    match expression:
        case {"counter": Mapping() as counter} if set(counter) == {"packets", "bytes"}:
            return {"counter": None}
    return expression


def skeleton(normalized: Iterable[Object]) -> list[Object]:
    """Everything but the elements of sets."""
    bare: list[Object] = []
    for item in normalized:
        body = item.get("set")
        if isinstance(body, Mapping):
            bare.append({"set": {key: value for key, value in body.items() if key != "elem"}})
        else:
            bare.append(item)
    return bare


def read_counts(objects: Iterable[Mapping[str, object]]) -> dict[str, tuple[int, int]]:
    """What each of our rules has counted."""
    counts: dict[str, tuple[int, int]] = {}
    for item in objects:
        match item:
            case {"rule": {"comment": str(comment), "expr": list(expressions)}}:
                for expression in expressions:
                    match expression:
                        case {"counter": {"packets": int(packets), "bytes": int(size_bytes)}}:
                            counts[comment] = (packets, size_bytes)
    return counts


def keep_counts(before: Counts, now: Counts) -> dict[str, tuple[int, int]]:
    """The larger of what was seen: a rule that somebody made anew counts from zero, ours goes on."""
    return {comment: max(now.get(comment, (0, 0)), before.get(comment, (0, 0))) for comment in {*before, *now}}


def describe_difference(present: Iterable[Object] | None, wanted: Iterable[Object] | None) -> tuple[str, ...]:
    """Lines of nft text: `-` stands in the kernel and should not, `+` is missing there. Empty when they agree."""
    return difference_of_texts(_text(present), _text(wanted))


def _text(objects: Iterable[Object] | None) -> str:
    return "" if objects is None else render(normalize(objects))


def difference_of_texts(present: str, wanted: str) -> tuple[str, ...]:
    lines = difflib.unified_diff(present.splitlines(), wanted.splitlines(), n=0, lineterm="")
    return tuple(line[0] + line[1:].expandtabs(4) for line in lines if not line.startswith(("---", "+++", "@@")))
