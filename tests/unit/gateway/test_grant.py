"""What a key grants: which models by which names, and what a table's keys become."""

import time

import pytest

from core.api import ApiKey, SecurityPolicy
from gateway.auth import Access, compile_policy, decide
from gateway.errors import ApiError
from gateway.grant import OPEN, Grant, KeyLimits, ModelRule
from gateway.lookup import find_model, names_for
from gateway.table import build_lookup
from tests.unit.gateway.hand_clock import HandClock
from tests.unit.gateway.tables import key, model, table, target


@pytest.mark.parametrize(
    ("patterns", "asked", "want"),
    [
        (["m"], "m", True),
        (["m"], "M", False),
        (["m"], "mm", False),
        (["m", "n"], "n", True),
        (["qwen-*"], "qwen-7b", True),
        (["qwen-*"], "qwen-", True),
        (["qwen-*"], "qwen", False),
        (["qwen-*"], "my-qwen-7b", False),
        (["*"], "anything/at all", True),
        (["*-7b"], "qwen-7b-7b", True),
        (["a*b*c"], "a-b-b-c", True),
        (["a*b*c"], "a-c-b", False),
        (["a*b*b"], "ab", False),
        (["a*b*b"], "abb", True),
        (["a?c"], "abc", True),
        (["a?c"], "ac", False),
        (["a?c"], "a\nc", True),
        (["**"], "x", True),
        # No other character means anything.
        (["a.c"], "abc", False),
        (["a[bc]"], "ab", False),
        (["a[bc]"], "a[bc]", True),
        (["(a|b)+"], "(a|b)+", True),
        (["org/model@1:q4"], "org/model@1:q4", True),
        (["ü*"], "üß", True),
        (["a", "b*|c"], "c", False),
    ],
)
def test_a_pattern_has_two_special_characters_and_covers_the_whole_name(
    patterns: list[str], asked: str, want: bool
) -> None:
    assert ModelRule(patterns).allows(asked) is want


def test_no_name_makes_a_pattern_of_many_stars_slow() -> None:
    rule = ModelRule(["a*" * 120 + "b"])
    began_s = time.monotonic()
    assert not rule.allows("a" * 20_000)
    assert time.monotonic() - began_s < 20


def test_what_is_remembered_of_names_is_bounded() -> None:
    rule = ModelRule(["m*"])
    assert all(rule.allows(f"m{number}") for number in range(3000))
    assert len(rule._known) <= 1024


@pytest.mark.parametrize(
    ("models", "asked", "want"),
    [
        ([], "qwen", "qwen"),
        ([], "nope", 404),
        (["qwen"], "qwen", "qwen"),
        (["qwen"], "chat", "qwen"),
        (["chat"], "chat", "qwen"),
        (["chat"], "qwen", 403),
        (["chat"], "other", 403),
        # What is there and what is not are refused alike.
        (["qwen"], "flux", 403),
        (["qwen"], "nope", 403),
        (["q*"], "qnope", 404),
    ],
)
def test_a_key_finds_its_models_and_learns_of_no_other(models: list[str], asked: str, want: str | int) -> None:
    lookup = build_lookup(table(model("qwen", target(), aliases=("chat",)), model("flux", target("t2"))))
    grant = Grant("k", ApiKey(sha256="00" * 32, models=models))
    if isinstance(want, str):
        assert find_model(lookup, grant, asked).model.id == want
    else:
        with pytest.raises(ApiError) as caught:
            find_model(lookup, grant, asked)
        assert caught.value.http_status == want


@pytest.mark.parametrize(
    ("models", "names"),
    [([], ("m",)), (["m"], ("m",)), (["a*"], ("a1", "a2")), (["a2"], ("a2",)), (["x"], ()), (["m", "a1"], ("m",))],
)
def test_a_model_is_listed_by_the_names_by_which_the_key_may_use_it(models: list[str], names: tuple[str, ...]) -> None:
    grant = Grant("k", ApiKey(sha256="00" * 32, models=models))
    assert names_for(grant, model("m", target(), aliases=("a1", "a2"))) == names


def test_limits_are_none_where_none_is_set_and_never_negative() -> None:
    assert Grant("k", ApiKey(sha256="")).limits is None
    assert Grant("k", ApiKey(sha256="", requests_per_minute=-5)).limits is None
    assert Grant("k", ApiKey(sha256="", tokens_per_minute=5, concurrency=-1)).limits == KeyLimits(0, 5, 0)
    assert OPEN.limits is None and OPEN.allows("any", "any")


@pytest.mark.parametrize(("expires_s", "allowed"), [(0.0, True), (100.5, True), (100.0, False), (1.0, False)])
def test_an_expired_key_is_no_key(expires_s: float, allowed: bool) -> None:
    policy = compile_policy(
        [ApiKey(sha256=key("k").sha256, name="k", expires_s=expires_s)], SecurityPolicy(bind_host="0.0.0.0")
    )
    clock = HandClock()  # it says 100
    if allowed:
        assert decide(Access.INFERENCE, b"k", "10.0.0.7", policy, clock).name == "k"
    else:
        with pytest.raises(ApiError) as caught:
            decide(Access.INFERENCE, b"k", "10.0.0.7", policy, clock)
        with pytest.raises(ApiError) as unknown:
            decide(Access.INFERENCE, b"wrong", "10.0.0.7", policy, clock)
        assert (caught.value.body(), caught.value.headers()) == (unknown.value.body(), unknown.value.headers())


def admits(keys: list[ApiKey], sent: bytes, **security: object) -> bool:
    policy = compile_policy(keys, SecurityPolicy(**security))  # type: ignore[arg-type]
    try:
        decide(Access.ADMIN, sent, "127.0.0.1", policy, HandClock())
    except ApiError:
        return False
    return True


def test_a_made_key_for_inference_never_administers() -> None:
    made = ApiKey(sha256=key("made").sha256, name="made", made=True)
    assert not admits([made], b"made", bind_host="0.0.0.0")
    assert not admits([made, key("config")], b"made", bind_host="0.0.0.0")
    assert admits([made, key("config")], b"config", bind_host="0.0.0.0")


def test_a_made_key_for_administration_is_an_admin_key_like_any_other() -> None:
    made = ApiKey(sha256=key("made").sha256, name="made", scope="admin", made=True)
    assert admits([made, key("config")], b"made", bind_host="0.0.0.0")
    assert not admits([made, key("config")], b"config", bind_host="0.0.0.0")
    assert not admits([made], b"", bind_host="127.0.0.1")


def test_administration_does_not_open_because_its_last_key_expired() -> None:
    expired = ApiKey(sha256=key("old").sha256, name="old", scope="admin", made=True, expires_s=1.0)
    assert not admits([expired, key("config")], b"old", bind_host="127.0.0.1")
    assert not admits([expired, key("config")], b"config", bind_host="127.0.0.1")
    assert not admits([expired], b"", bind_host="127.0.0.1")


def test_administration_does_not_open_because_keys_cannot_be_read() -> None:
    assert admits([key("config")], b"config", bind_host="127.0.0.1")
    assert not admits([key("config")], b"config", bind_host="127.0.0.1", only_admin_keys=True)
    assert not admits([], b"", bind_host="127.0.0.1", only_admin_keys=True)
    assert admits([key("root", "admin")], b"root", bind_host="127.0.0.1", only_admin_keys=True)


def test_what_was_made_of_the_keys_is_kept_while_they_are_the_same() -> None:
    first = build_lookup(table(model("a", target()), keys=(key("k"),)))
    second = build_lookup(table(model("b", target()), keys=(key("k"),)), first)
    third = build_lookup(table(model("b", target()), keys=(key("other"),)), second)
    fourth = build_lookup(table(model("b", target()), keys=(key("other"),), allow_missing_auth=False), third)
    assert second.access is first.access
    assert third.access is not second.access
    assert fourth.access is not third.access
