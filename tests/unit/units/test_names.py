"""Unit names: safe as file names, different for different ids, and back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from units.names import RuntimeIdRefused, engine_unit_name, gate_unit_name, is_generated, runtime_id_of

TEXT = st.text(alphabet=st.characters(codec="utf-8"), min_size=1)
SIMILAR = st.text(alphabet="a_h0f/.-", min_size=1, max_size=160)


@given(TEXT)
def test_a_name_is_safe_for_files_shells_and_systemd(runtime_id: str) -> None:
    for name in (engine_unit_name(runtime_id), gate_unit_name(runtime_id)):
        assert re.fullmatch(r"llmgw-(engine|gate)-[A-Za-z0-9._-]+\.service", name)
        assert len(name) <= 255 - 80
        assert is_generated(name)


@given(st.one_of(TEXT, SIMILAR))
def test_an_id_comes_back_from_its_name_unless_it_was_shortened(runtime_id: str) -> None:
    name = engine_unit_name(runtime_id)
    assert runtime_id_of(name) in (runtime_id, None)
    if len(runtime_id.encode()) <= 50:
        assert runtime_id_of(name) == runtime_id


@given(st.one_of(TEXT, SIMILAR), st.one_of(TEXT, SIMILAR))
def test_two_ids_never_share_a_name(one: str, other: str) -> None:
    assert (engine_unit_name(one) == engine_unit_name(other)) == (one == other)
    assert engine_unit_name(one) != gate_unit_name(other)


@pytest.mark.parametrize(
    ("runtime_id", "name"),
    [
        ("qwen2.5-0.5b", "llmgw-engine-qwen2.5-0.5b.service"),
        ("meta/llama:8b@fp8", "llmgw-engine-meta_2fllama_3a8b_40fp8.service"),
        ("../../etc/passwd", "llmgw-engine-.._2f.._2fetc_2fpasswd.service"),
        ("a\nb%c\\", "llmgw-engine-a_0ab_25c_5c.service"),
        ("é", "llmgw-engine-_c3_a9.service"),
        ("my_model", "llmgw-engine-my_model.service"),
        ("my_5b__/_", "llmgw-engine-my_5f5b___2f_.service"),
        ("a_h" + "0" * 32, f"llmgw-engine-a_5fh{'0' * 32}.service"),
        (".", "llmgw-engine-..service"),
    ],
)
def test_ids_are_escaped_byte_by_byte(runtime_id: str, name: str) -> None:
    assert engine_unit_name(runtime_id) == name


def test_long_ids_that_differ_at_their_end_differ_in_their_hash() -> None:
    one, other = (engine_unit_name("m" * 4000 + end) for end in "ab")
    assert one != other
    assert runtime_id_of(one) is None


@pytest.mark.parametrize(
    "name",
    [
        "ssh.service",
        "llmgw-daemon.service",
        "llmgw-engine-.service",
        "llmgw-engine-a/b.service",
        "llmgw-engine-a:2f.service",
        "llmgw-engine-a\\x2f.service",
        "llmgw-engine-a.socket",
        "llmgw-engine-a.service.d",
        "llmgw-engine-a@b.service",
        "",
        "llmgw-engine-a_61.service",
        ".llmgw-engine-a.service.12.new",
        "llmgw-engine-_ff.service",
        f"llmgw-engine-{'a' * 151}.service",
    ],
)
def test_a_name_that_we_never_make_stands_for_no_runtime(name: str) -> None:
    assert runtime_id_of(name) is None


@pytest.mark.parametrize("runtime_id", ["", "\ud800"])
def test_what_is_no_id_is_refused(runtime_id: str) -> None:
    with pytest.raises(RuntimeIdRefused):
        engine_unit_name(runtime_id)
