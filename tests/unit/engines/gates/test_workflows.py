"""What a caller's workflow becomes before ComfyUI sees it, and which files are a caller's own."""

import json

import pytest

from core.errors import DependencyError, UsageError
from engines.gates.comfyui.engine import read_version
from engines.gates.comfyui.graph import MAX_NODES, own_workflow, read_body
from engines.gates.comfyui.nodes import read_nodes
from engines.gates.comfyui.places import File, may_view, own_input, own_prefix
from tests.fakes.comfyui import CLASSES

ME = "c-0123"
NODES = read_nodes(json.dumps(CLASSES).encode(), frozenset())


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        ("cat", "cat"), ("", "ComfyUI"), ("a/b/cat", "a/b/cat"), ("../cat", "cat"), ("../../../etc/cron", "etc/cron"),
        ("/etc/cron", "etc/cron"), ("..\\..\\cat", "cat"), ("a/../../b", "a/b"), (".", "ComfyUI"),
        ("./.ssh/x", "ssh/x"),
        ("a//b", "a/b"), ("~/x", "_/x"), ("a\x00b\n", "a_b_"), ("%date:yyyy%/x", "%date_yyyy%/x"),
        ("1/2/3/4/5/6", "3/4/5/6"),
        ("ä", "_"), ("x" * 500, "x" * 80), ("a /b. ", "a/b"), ("$(id)", "_(id)"), ("c-9999/cat", "c-9999/cat"),
    ],
)  # fmt: skip
def test_what_a_node_saves_stays_below_the_callers_folder(wanted: str, got: str) -> None:
    assert own_prefix(ME, wanted) == f"{ME}/{got}"


@pytest.mark.parametrize("name", ["a.png", "c-0123/a.png", "a.png [input]", "my photo (1).png"])
def test_a_node_reads_the_callers_own_uploads(name: str) -> None:
    assert own_input(ME, name).startswith(f"{ME}/") and ".." not in own_input(ME, name)


@pytest.mark.parametrize(
    "name",
    [
        "../a.png", "c-9999/a.png", "a.png [output]", "a.png [temp]", "/etc/passwd", "", ".a", "a/../b.png", "a\\b.png",
        "c-0123/../a.png", "c-0123/c-9999/a.png", "a.png\x00", "a.png\n", "a [input] [output]", "x" * 300,
    ],
    ids=ascii,
)  # fmt: skip
def test_a_node_reads_nothing_else(name: str) -> None:
    with pytest.raises(UsageError):
        own_input(ME, name)


@pytest.mark.parametrize(
    ("file", "allowed"),
    [
        (File("a.png", ME), True), (File("a.png", f"{ME}/x/y"), True), (File("a.png", ME, "input"), True),
        (File("t.png", "", "temp"), True), (File("u.png", "", "temp"), False), (File("a.png"), False),
        (File("a.png", f"{ME}/.."), False), (File("a.png", f"{ME}//x"), False), (File("a.png", f"{ME}x"), False),
        (File("a.png", f"/{ME}"), False), (File("a.png", ME, "user"), False), (File("../a.png", ME), False),
        (File("", ME), False), (File("a.png", f"{ME}/ x"), False), (File("a.png", f"{ME}\\..\\x"), False),
    ],
    ids=str,
)  # fmt: skip
def test_only_the_callers_own_files_are_viewed(file: File, allowed: bool) -> None:
    assert may_view(ME, file, {File("t.png", "", "temp")}) is allowed


@pytest.mark.parametrize(
    "name", ["LoadImageOutput", "LoadLatent", "SaveImageDataSetToFolder", "RunPython", "PaidImage"]
)
def test_a_class_that_reads_or_writes_what_is_shared_may_not_be_used(name: str) -> None:
    asked = read_body(json.dumps({"prompt": {"1": {"class_type": name, "inputs": {}}}}).encode())
    with pytest.raises(UsageError, match="may not be used"):
        own_workflow(asked, ME, NODES)
    own_workflow(asked, ME, read_nodes(json.dumps(CLASSES).encode(), frozenset({name})))


@pytest.mark.parametrize(
    ("class_type", "inputs"),
    [
        ("Unheard", {}), ("SaveImage", {"filename_prefix": ["9", 0]}), ("SaveImage", {"filename_prefix": None}),
        ("SaveImage", {"filename_prefix": {"x": 1}}), ("LoadImage", {"image": ["9", 0]}),
        ("LoadImage", {"image": "x.png [output]"}), ("LoadImage", {"image": 7}),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_known_before_the_run_is_refused(class_type: str, inputs: dict[str, object]) -> None:
    asked = read_body(json.dumps({"prompt": {"1": {"class_type": class_type, "inputs": inputs}}}).encode())
    with pytest.raises(UsageError):
        own_workflow(asked, ME, NODES)


def test_nothing_of_the_request_but_the_work_itself_is_passed_on() -> None:
    body = {
        "prompt": {"1": {"class_type": "SaveImage", "inputs": {"filename_prefix": "cat"}, "evil": 1}},
        "front": True, "number": -5, "client_id": "bob", "prompt_id": "theirs", "model": "art",
        "extra_data": {"client_id": "bob", "auth_token_comfy_org": "x", "extra_pnginfo": {"workflow": {"a": 1}}},
        "partial_execution_targets": ["1"],
    }  # fmt: skip
    sent = json.loads(own_workflow(read_body(json.dumps(body).encode()), ME, NODES).encode("ours", "gate"))
    assert sent == {
        "prompt": {"1": {"class_type": "SaveImage", "inputs": {"filename_prefix": f"{ME}/cat"}}},
        "prompt_id": "ours", "client_id": "gate", "partial_execution_targets": ["1"],
        "extra_data": {"extra_pnginfo": {"workflow": {"a": 1}}},
    }  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b'{"prompt": {}}', b'{"prompt": []}', b'{"prompt": {"1": {}}}',
        b'{"prompt": {"1": {"class_type": 1}}}',
        b'{"prompt": {"1": {"class_type": "A", "inputs": []}}}', b"\xff", b'{"prompt":' * 5000, b'{"prompt": null}',
        json.dumps({"prompt": {str(n): {"class_type": "A"} for n in range(MAX_NODES + 1)}}).encode(),
    ],
    ids=range(12),
)  # fmt: skip
def test_what_is_no_workflow_is_refused(body: bytes) -> None:
    with pytest.raises(UsageError):
        read_body(body)


@pytest.mark.parametrize("text", [b"", b"[]", b"\xff", b"[" * 5000])
def test_an_object_info_that_is_none_allows_nothing(text: bytes) -> None:
    with pytest.raises(DependencyError):
        read_nodes(text, frozenset())


def test_odd_descriptions_of_a_class_open_nothing() -> None:
    odd = {
        "NoModule": {"input": {"required": {}}},
        "LoadX": {"input": {"required": {"x": "STRING"}}, "python_module": "nodes"},
        "LoadY": {"input": [], "python_module": "nodes"},
        "Writer": {"input": {"required": {"path": ["STRING"]}}, "python_module": "nodes", "output_node": True},
        "One": 1,
        "Two": {"output_node": "x", "python_module": "nodes"},
        "Fake": {"input": {"required": {}}, "python_module": "nodes.evil"},
    }
    assert all(node.refusal for node in read_nodes(json.dumps(odd).encode(), frozenset()).values())


@pytest.mark.parametrize(
    ("text", "version"),
    [("0.3.64", (0, 3, 64)), ("v0.27", (0, 27, 0)), ("", (0, 0, 0)), ("x", (0, 0, 0)), ("1.2.3-rc1", (1, 2, 3))],
)
def test_a_version_is_read(text: str, version: tuple[int, int, int]) -> None:
    assert read_version(text) == version
