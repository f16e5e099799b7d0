"""What a caller's websocket is told, and how much of it may wait."""

import asyncio
import json

import pytest

from engines.gates.comfyui.jobs import Job, JobError, JobRecord, JobState
from engines.gates.comfyui.sockets import MAX_OF_CALLER, MAX_SOCKETS, GateSocketsFull, Mailbox, Sockets, TooManySockets
from engines.gates.comfyui.telling import read_preview, retell, tell_end


def said(kind: str, **data: object) -> str:
    return json.dumps({"type": kind, "data": {"prompt_id": "p", **data}})


def test_of_a_message_only_the_known_fields_pass() -> None:
    told = json.loads(retell("executing", said("executing", node="1", display_node="1", secret="/home", argv=["x"])))
    assert told == {"type": "executing", "data": {"node": "1", "display_node": "1", "prompt_id": "p"}}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("execution_error", said("execution_error", exception_message="x", traceback=["/home/me"])),
        ("execution_success", said("execution_success")), ("logs", said("logs", entries=["x"])), ("progress", "[]"),
        ("progress", "{}"), ("progress", '{"type": "progress", "data": 5}'), ("progress", "[" * 5000),
        ("progress_state", said("progress_state", nodes={"1": "x" * 300_000})),
    ],
    ids=range(8),
)  # fmt: skip
def test_other_messages_are_not_told(kind: str, text: str) -> None:
    assert retell(kind, text) == ""


def test_of_a_large_result_the_files_are_told() -> None:
    output = {"images": [{"filename": "a.png", "subfolder": "c", "type": "output"}], "text": ["x" * 300_000]}
    told = json.loads(retell("executed", said("executed", node="1", output=output)))
    assert [file["filename"] for file in told["data"]["output"]["files"]] == ["a.png"]


def with_facts(facts: bytes, picture: bytes = b"picture") -> bytes:
    return b"\0\0\0\4" + len(facts).to_bytes(4, "big") + facts + picture


PREVIEWS: list[tuple[bytes, tuple[str, bytes] | None]] = [
    (b"\0\0\0\1\0\0\0\1picture", ("", b"\0\0\0\1\0\0\0\1picture")),
    (b"\0\0\0\1\0\0\0\2picture", ("", b"\0\0\0\1\0\0\0\2picture")),
    (with_facts(b'{"prompt_id":"p","image_type":"image/jpeg"}'), ("p", b"\0\0\0\1\0\0\0\1picture")),
    (with_facts(b'{"prompt_id":"p","image_type":"image/png","x":1}'), ("p", b"\0\0\0\1\0\0\0\2picture")),
    (with_facts(b'{"prompt_id":"p","image_type":"text/html"}'), None),
    (with_facts(b'{"image_type":"image/png"}'), None),
    (with_facts(b'{"prompt_id":"","image_type":"image/png"}'), None), (with_facts(b"[]"), None),
    (with_facts(b'{"prompt_id":"p","image_type":"image/png"}', b""), None), (with_facts(b"\xff"), None),
    (b"\0\0\0\4\xff\xff\xff\xffxxxx", None), (b"\0\0\0\1\0\0\0\3picture", None), (b"\0\0\0\1\0\0\0\1", None),
    (b"\0\0\0\3\0\0\0\1atext", None), (b"", None), (b"\0\0\0\1", None), (b"\0\0\0\1\0\0\0\1" + b"x" * (9 << 20), None),
]  # fmt: skip


@pytest.mark.parametrize(("frame", "preview"), PREVIEWS, ids=range(len(PREVIEWS)))
def test_a_preview_is_a_picture_and_nothing_else(frame: bytes, preview: tuple[str, bytes] | None) -> None:
    assert read_preview(frame) == preview


def test_an_end_brings_the_results_that_were_not_told_yet() -> None:
    record = JobRecord(id="p", caller="c", state=JobState.DONE, outputs={"1": {"images": []}, "2": {"images": [{}]}})
    job = Job(record, told_outputs={"1"})
    told = [json.loads(text) for text in tell_end(job)]
    assert [message["type"] for message in told] == ["executed", "execution_success", "executing"]
    assert (told[0]["data"]["node"], told[2]["data"]["node"]) == ("2", None)
    failed = JobRecord(id="p", caller="c", state=JobState.FAILED, error=JobError("engine_lost", "it ended", "3", "K"))
    (error, over) = [json.loads(text) for text in tell_end(Job(failed))]
    assert (error["data"]["exception_type"], error["data"]["node_id"]) == ("engine_lost", "3")


async def test_the_newest_preview_takes_the_place_of_the_one_before() -> None:
    box = Mailbox("c", "")
    for number in range(5):
        box.show(b"%d" % number)
    box.put("first")
    assert [await box.take(), await box.take()] == ["first", b"4"]
    box.show(b"late")
    box.drop_preview()
    box.put("second")
    assert await box.take() == "second"
    waiting = asyncio.create_task(box.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.parametrize("texts", [["x"] * 5001, ["x" * 1000] * 1100], ids=["many", "long"])
def test_a_mailbox_that_nobody_empties_keeps_nothing_more(texts: list[str]) -> None:
    box = Mailbox("c", "")
    box.show(b"x")
    for text in texts:
        box.put(text)
    assert box.overrun.is_set() and not box._texts and box._preview is None
    box.put("more")
    box.show(b"more")
    assert not box._texts and box._preview is None


def test_sockets_are_counted_by_caller_and_in_all() -> None:
    sockets = Sockets()
    boxes = [sockets.open("ada", "") for _ in range(MAX_OF_CALLER)]
    with pytest.raises(TooManySockets):
        sockets.open("ada", "another")
    sockets.close(boxes[0])
    sockets.close(boxes[0])
    sockets.open("ada", "another")
    for number in range(MAX_SOCKETS - MAX_OF_CALLER):
        sockets.open(f"caller {number}", "")
    with pytest.raises(GateSocketsFull):
        sockets.open("bob", "")


def test_a_box_hears_of_its_caller_and_of_its_name_only() -> None:
    sockets = Sockets()
    boxes = {(who, name): sockets.open(who, name) for who in ("ada", "bob") for name in ("", "x", "y")}
    job = Job(JobRecord(id="p", caller="ada", client="x"))
    sockets.pass_on(job, "progress", "1", said("progress", value=1, max=2))
    assert {place for place, box in boxes.items() if box._texts} == {("ada", ""), ("ada", "x")}
    sockets.tell_queue("bob", 3)
    assert {place for place, box in boxes.items() if len(box._texts) == 1 and place[0] == "bob"} == {
        ("bob", ""), ("bob", "x"), ("bob", "y"),
    }  # fmt: skip
