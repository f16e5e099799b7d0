"""The record in a unit file: written, read back, and what is not a record of ours."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.runtime import Authority, AuthorityScope
from tests.unit.units.samples import GPU, PLAIN
from units.model import Failure, UnitRecord
from units.record import RecordUnreadable, change_record, parse_record, render_record
from units.render import render_unit

TEXT = st.text(alphabet="ab\"'\\ %$=[]#;é\u2028\u00a0", max_size=12)
SOME = st.text(alphabet="ab\"'\\ %$=[]#;é\u2028\u00a0", min_size=1, max_size=12)
RECORDS = st.builds(
    UnitRecord,
    runtime_id=SOME,
    kind=st.sampled_from(["engine", "gate"]),
    engine=TEXT,
    build=TEXT,
    spec_hash=TEXT,
    ports=st.lists(st.integers(1, 65535), max_size=3).map(tuple),
    authority=st.builds(Authority, owner=TEXT, scope=st.sampled_from(AuthorityScope), group=TEXT),
    devices=st.lists(SOME, max_size=3).map(tuple),
    since=TEXT,
    hold=st.booleans(),
    leaving=st.booleans(),
    failure=st.none() | st.builds(Failure.of, SOME, st.text(min_size=1, max_size=400)),
)


@given(RECORDS)
def test_a_record_is_read_back_from_its_unit_file(record: UnitRecord) -> None:
    assert parse_record("\n".join(render_record(record))) == record
    assert parse_record(render_unit(replace(GPU, record=record))) == record


@given(RECORDS, st.booleans(), st.none() | st.builds(Failure.of, SOME, TEXT))
def test_changing_a_record_changes_nothing_else_in_its_file(
    record: UnitRecord, hold: bool, failure: Failure | None
) -> None:
    text = render_unit(replace(PLAIN, record=record))
    change = partial(replace, hold=hold, failure=failure)
    assert change_record(text, change) == render_unit(replace(PLAIN, record=change(record)))


def hold(record: UnitRecord) -> UnitRecord:
    return replace(record, hold=True)


def test_keys_of_a_newer_version_are_passed_over_and_kept() -> None:
    text = render_unit(PLAIN) + "Colour=red green\n# a note\n"
    assert parse_record(text) == PLAIN.record
    assert change_record(text, hold).endswith("Hold=yes\nColour=red green\n# a note\n")


RECORD = "[X-Llmgw]\nRuntimeId=a\nKind=engine\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00\x01\x02",
        "[Service]\nExecStart=/bin/sleep 1\n",
        "[X-Llmgw]\n",
        "[X-Llmgw]\nRuntimeId=a\n",
        "[X-Llmgw]\nKind=engine\n",
        "[X-Llmgw]\nRuntimeId=\nKind=engine\n",
        "[X-Llmgw]\nRuntimeId=a b\nKind=engine\n",
        "[X-Llmgw]\nRuntimeId=a\nKind=cron\n",
        RECORD + "RuntimeId=b\n",
        RECORD + RECORD,
        RECORD + "Ports=http\n",
        RECORD + "Ports=0\n",
        RECORD + "Ports=65536\n",
        RECORD + "Ports=-1\n",
        RECORD + "Ports=١\n",
        RECORD + "Ports=" + "9" * 5000 + "\n",
        RECORD + "Hold=maybe\n",
        RECORD + "Failure=code\n",
        RECORD + "Failure=code message more\n",
        RECORD + "AuthorityScope=emperor\n",
        RECORD + 'Engine="open\n',
        RECORD + "Engine=%n\n",
        RECORD + "no assignment\n",
    ],
)
def test_what_is_no_record_of_ours_is_one_error(text: str) -> None:
    with pytest.raises(RecordUnreadable):
        parse_record(text)


TOKENS = ["[X-Llmgw]", "RuntimeId", "Kind", "=", "a", "engine", "\n", "Ports", '"', "\\", "%"]


@given(st.lists(st.sampled_from(TOKENS)).map("".join))
def test_reading_garbage_gives_a_record_or_one_error(text: str) -> None:
    try:
        parse_record(text)
    except RecordUnreadable:
        return


def test_a_record_that_does_not_end_the_file_is_not_rewritten() -> None:
    with pytest.raises(RecordUnreadable):
        change_record(RECORD + "[Service]\nExecStart=/bin/true\n", hold)
