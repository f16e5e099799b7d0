"""Looking models up, and which of two tables counts."""

import msgspec
import pytest

from core.api import RouteTable
from gateway.table import build_lookup, is_newer, sorted_key_files, speaks
from tests.unit.gateway.tables import model, table, target, unready

CHAT = "/v1/chat/completions"


def test_a_model_is_found_by_id_and_by_alias() -> None:
    lookup = build_lookup(table(model("a", target(), aliases=("x", "y"))))
    assert {name: entry.model.id for name, entry in lookup.models.items()} == {"a": "a", "x": "a", "y": "a"}


def test_an_id_wins_over_an_alias_of_that_name() -> None:
    lookup = build_lookup(table(model("a", target(), aliases=("b",)), model("b", target("t2"))))
    assert lookup.models["b"].model.id == "b"


def test_only_advertised_models_with_targets_are_listed() -> None:
    lookup = build_lookup(
        table(model("a", target(), aliases=("x",)), model("b", target(), advertise=False), model("c"))
    )
    assert [each.id for each in lookup.listed] == ["a"]


def test_a_model_that_is_not_ready_is_listed_all_the_same() -> None:
    assert [each.id for each in build_lookup(table(model("a", unready("failed")))).listed] == ["a"]


def test_only_ready_targets_that_serve_the_path_are_candidates() -> None:
    chat, embed = target("c", routes=[CHAT]), target("e", routes=["/v1/embeddings"])
    entry = build_lookup(table(model("a", chat, embed, unready("starting", "s"), target("all")))).models["a"]
    assert [each.id for each in entry.ready[CHAT]] == ["c", "all"]
    assert [each.id for each in entry.ready["/v1/embeddings"]] == ["e", "all"]


@pytest.mark.parametrize(
    ("current", "candidate", "want"),
    [
        (None, ("e1", 1), True),
        (("e1", 1), ("e1", 2), True),
        (("e1", 2), ("e1", 2), False),
        (("e1", 2), ("e1", 1), False),
        (("e1", 9), ("e2", 1), True),
        (("e1", 9), ("e2", 0), True),
    ],
)
def test_versions_count_within_one_life_of_the_daemon(
    current: tuple[str, int] | None, candidate: tuple[str, int], want: bool
) -> None:
    def made(pair: tuple[str, int]) -> RouteTable:
        return msgspec.structs.replace(table(), epoch=pair[0], version=pair[1])

    assert is_newer(made(candidate), made(current) if current else None) is want


def test_each_key_file_is_named_once() -> None:
    models = [model("a", target(key_file="/k/b"), target("t2", key_file="/k/a")), model("b", target(key_file="/k/b"))]
    assert sorted_key_files(table(*models, model("c", target()))) == ("/k/a", "/k/b")


@pytest.mark.parametrize(
    ("routes", "speaks_it", "offers_it"),
    [
        ([], False, True),
        ([CHAT], False, True),
        (["/v1/messages"], True, True),
        ([CHAT, "/v1/messages"], True, True),
        (["/v1/embeddings"], False, False),
    ],
)
def test_a_message_can_be_answered_by_who_speaks_it_and_by_who_chats(
    routes: list[str], speaks_it: bool, offers_it: bool
) -> None:
    there = target("t", routes=routes)
    ready = build_lookup(table(model("a", there))).models["a"].ready["/v1/messages"]
    assert (speaks(there, "/v1/messages"), bool(ready)) == (speaks_it, offers_it)
