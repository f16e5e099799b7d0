"""A prompt's progress from ComfyUI's messages, the ledger of whose it is, and the spelling of paths."""

import json
from pathlib import Path

import msgspec
import pytest

from core.caller import caller_mark, is_mark
from engines.gates.comfyui.jobs import Job, JobRecord, JobState, bound_outputs, files_of, read_message
from engines.gates.comfyui.ledger import KEEP, Ledger, find_surplus, read_records
from engines.gates.comfyui.places import File
from engines.gates.door import is_plain


def heard(job: Job, kind: str, **data: object) -> Job:
    message = read_message(json.dumps({"type": kind, "data": {"prompt_id": job.id, **data}}))
    assert message is not None
    job.hear(*message)
    return job


def a_job() -> Job:
    return Job(JobRecord(id="p", caller="c-1", node_count=4), {"3": "KSampler"})


def test_progress_counts_cached_and_finished_nodes_and_the_running_ones_steps() -> None:
    job = a_job()
    assert job.progress(2).ahead == 2
    heard(job, "execution_start", timestamp=1)
    heard(job, "execution_cached", nodes=["1"])
    heard(job, "executing", node="2")
    heard(job, "executing", node="3")
    heard(job, "progress", value=5, max=10, node="3")
    told = job.progress(0)
    assert (told.state, told.ahead, told.nodes_done, told.step, told.steps, told.percent) == (
        JobState.RUNNING, None, 2, 5.0, 10.0, 62.5,
    )  # fmt: skip
    assert told.node is not None and (told.node.id, told.node.class_type) == ("3", "KSampler")


def test_newer_messages_tell_the_same() -> None:
    nodes = {"1": {"state": "finished", "value": 1, "max": 1}, "3": {"state": "running", "value": 1, "max": 4}}
    told = heard(a_job(), "progress_state", nodes=nodes).progress(0)
    assert (told.nodes_done, told.step, told.steps, told.percent) == (1, 1.0, 4.0, 31.2)


def test_progress_never_leaves_its_bounds() -> None:
    job = heard(a_job(), "execution_cached", nodes=[str(n) for n in range(50)])
    heard(job, "progress", value=99, max=3, node="77")
    assert job.progress(0).percent == 100.0 and job.progress(0).nodes_done == 4
    assert Job(JobRecord(id="x", caller="c")).progress(0).percent == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "null", '{"type": 1}', '{"type": "progress", "data": []}', '{"type": "status", "data": {}}', "\ud800",
        '{"type": "progress", "data": {"value": "x"}}', '{"type": "executing"', "[" * 5000,
        '{"type": "executing", "data": {"node": 5}}',
    ],
    ids=ascii,
)  # fmt: skip
def test_odd_messages_are_none(text: str) -> None:
    assert read_message(text) is None


def test_files_are_found_in_outputs_of_any_shape() -> None:
    outputs: dict[str, object] = {
        "1": {"images": [{"filename": "a.png", "subfolder": "x", "type": "temp"}, 7, {"filename": 1}], "text": ["hi"]},
        "2": "odd", "3": {"gifs": {"filename": "b"}}, "4": {"audio": [{"filename": "c.mp3"}]},
    }  # fmt: skip
    assert files_of(outputs) == [("1", File("a.png", "x", "temp")), ("4", File("c.mp3"))]


def test_of_very_large_outputs_only_the_files_are_kept() -> None:
    small: dict[str, object] = {"1": {"text": ["hi"]}}
    assert bound_outputs(small) == small
    large: dict[str, object] = {"1": {"text": ["x" * 1_000_000], "images": [{"filename": "a.png", "subfolder": "c"}]}}
    assert files_of(bound_outputs(large)) == [("1", File("a.png", "c"))]
    many: dict[str, object] = {"1": {"images": [{"filename": f"{n}.png" + "y" * 9000} for n in range(3000)]}}
    assert len(json.dumps(bound_outputs(many))) < 1 << 20


def test_the_ledger_stays_small_however_long_a_gate_lives(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.load()
    record = JobRecord(id="1", caller="c", outputs={"1": {"text": ["x" * 100_000]}})
    for _ in range(200):
        ledger.add(record)
    assert (tmp_path / "ledger.jsonl").stat().st_size < 10 << 20
    assert Ledger(tmp_path).load() == [record]


def test_the_ledger_survives_torn_lines_and_keeps_the_newest(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.load() == []
    first = JobRecord(id="1", caller="c-1")
    ledger.add(first)
    ledger.add(JobRecord(id="2", caller="c-2"))
    ledger.add(msgspec.structs.replace(first, state=JobState.DONE, outputs={"3": {"images": []}}))
    with (tmp_path / "ledger.jsonl").open("ab") as file:
        file.write(b'\xff\nnull\n{"id": 3}\n{"id": "9", "cal')
    again = Ledger(tmp_path)
    assert [(record.id, record.state) for record in again.load()] == [("1", JobState.DONE), ("2", JobState.QUEUED)]
    again.add(JobRecord(id="4", caller="c-4"))
    assert [record.id for record in Ledger(tmp_path).load()] == ["1", "2", "4"]
    done = (JobRecord(id=str(n), caller="c", state=JobState.DONE) for n in range(KEEP + 5))
    many = b"".join(msgspec.json.encode(record) + b"\n" for record in done)
    (tmp_path / "ledger.jsonl").write_bytes(many)
    assert [record.id for record in Ledger(tmp_path).load()] == [str(n) for n in range(5, KEEP + 5)]
    assert read_records(b"") == []


SURPLUS: list[tuple[str, int, str]] = [
    ("a1 a2 a3", 3, ""), ("a1 a2 a3", 2, "a1"), ("b1 a1 a2 a3", 3, "a1"), ("b1 a1 a2 a3", 2, "a1 a2"),
    ("b1 b2 a1 a2", 2, "b1 a1"), ("a1* a2* a3", 1, "a3"), ("a1* a2*", 1, ""), ("a1* b1 a2 a3", 2, "b1 a2"), ("", 0, ""),
    ("a1 b1 c1", 2, "a1"), ("a1 b1 c1", 0, "a1 b1 c1"), ("a1 a2 a3 a4 b1 b2 c1", 4, "a1 a2 a3"),
]  # fmt: skip
"""Callers' prompts in the order in which they came, those with a star not over; how many are kept; which are not."""


@pytest.mark.parametrize(("came", "keep", "going"), SURPLUS)
def test_nobodys_many_prompts_make_anothers_forgotten(came: str, keep: int, going: str) -> None:
    records = [
        JobRecord(id=name, caller=name[0], state=JobState.RUNNING if name.endswith("*") else JobState.DONE)
        for name in came.split()
    ]
    assert find_surplus(records, keep) == going.split()


@pytest.mark.parametrize("path", ["/", "/a", "/a/b-c_d.e", "/v1/models", "/history/0a-1b", "/progress/x:y@z"])
def test_a_plain_path_is_plain(path: str) -> None:
    assert is_plain(path.encode())


@pytest.mark.parametrize(
    "path",
    [
        "", "a", "//", "/a/", "//a", "/a//b", "/.", "/..", "/a/..", "/a/../b", "/.a", "/a%2fb", "/%61", "/a;b", "/a\\b",
        "/a b", "/a\x00", "/a\n", "/\xe4", "*", "http://x/a", "/a" * 600, "/a?b", "/a#b", "/'", "/{x}",
    ],
    ids=ascii,
)  # fmt: skip
def test_every_other_spelling_is_not(path: str) -> None:
    assert not is_plain(path.encode("latin-1"))


def test_a_callers_mark_says_nothing_and_is_a_folders_name() -> None:
    marks = {caller_mark(name) for name in ("", "ada", "bob", "../x", "\ud800")}
    assert len(marks) == 5 and all(is_mark(mark) for mark in marks)
    assert not any("ada" in mark for mark in marks)
