"""The lock of an environment: everything has a digest and comes from the index, or there is none."""

import json
from pathlib import Path

import pytest

from engines.lock import (
    Asked,
    LockInvalid,
    RequirementsRefused,
    build_lock,
    narrow,
    pins_name,
    pins_of,
    read_constraints,
    read_requirements,
    require_pinned,
    requirement_names,
)
from engines.machine import Machine

WHEEL, OTHER = "ab" * 32, "cd" * 32
BY_WHEEL = Asked("fake-engine", "1.0", Path("/x/fake_engine-1.0-py3-none-any.whl"), sha256=(WHEEL,))
BY_FILE = Asked("Tree", "1.0", Path("/x/asked.txt"), names=("helper", "torch"))


def an_item(name: str, version: str, sha256: str, *, is_direct: bool = False) -> dict[str, object]:
    info = {"url": f"https://x/{name}.whl", "archive_info": {"hashes": {"sha256": sha256}}}
    return {"metadata": {"name": name, "version": version}, "download_info": info, "is_direct": is_direct}


def a_report(*items: dict[str, object]) -> bytes:
    return json.dumps({"version": "1", "install": list(items)}).encode()


def test_the_pinned_wheel_is_locked_to_its_file_and_the_rest_to_the_index() -> None:
    engine = an_item("fake_engine", "1.0", WHEEL, is_direct=True)

    lock = build_lock(a_report(engine, an_item("Helper", "2.0", OTHER)), BY_WHEEL)

    assert lock.splitlines() == [
        f"Helper==2.0 --hash=sha256:{OTHER}",
        f"fake_engine @ file:///x/fake_engine-1.0-py3-none-any.whl --hash=sha256:{WHEEL}",
    ]


def test_what_is_left_out_is_not_locked() -> None:
    asked = Asked("e", "1", Path("/x/e.whl"), sha256=(WHEEL,), leave_out=("Big_Thing",))

    lock = build_lock(a_report(an_item("e", "1", WHEEL), an_item("big-thing", "2", OTHER)), asked)

    assert "big" not in lock


def test_requirements_are_locked_to_the_index_with_versions_of_a_variant() -> None:
    torch = an_item("torch", "2.13.0+cpu", WHEEL)

    lock = build_lock(a_report(torch, an_item("helper", "1.0", OTHER), an_item("more", "3", OTHER)), BY_FILE)

    assert f"torch==2.13.0+cpu --hash=sha256:{WHEEL}" in lock.splitlines() and "@" not in lock
    assert BY_FILE.arguments == ("--requirement", "/x/asked.txt")


@pytest.mark.parametrize("asked", [BY_WHEEL, BY_FILE], ids=["wheel", "file"])
@pytest.mark.parametrize(
    "report",
    [
        b"", b"{}", b'{"install": 1}', b'{"install": []}', b"[]", b"\xff",
        b'{"install": [{"metadata": {"name": "x", "version": "1"}, "download_info": {}}]}',
        b'{"install": [{"metadata": {"name": "x", "version": "1"},'
        b' "download_info": {"archive_info": {"hashes": {}}}}]}',
        b'{"install": [{"metadata": {"name": "x", "version": "1"}, "download_info": {"vcs_info": {"vcs": "git"}}}]}',
        a_report(an_item("other", "1", OTHER)),
        a_report(an_item("fake-engine", "1.0", OTHER), an_item("torch", "1", OTHER)),
        a_report(an_item("helper", "1", OTHER), an_item("torch", "1", OTHER, is_direct=True)),
    ],
)  # fmt: skip
def test_nothing_is_locked_without_a_digest_or_from_elsewhere_or_without_what_was_asked_for(
    report: bytes, asked: Asked
) -> None:
    with pytest.raises(LockInvalid):
        build_lock(report, asked)


@pytest.mark.parametrize("asked", [BY_WHEEL, BY_FILE], ids=["wheel", "file"])
def test_a_mirrors_lock_has_versions_for_pip_and_is_no_other_ones(asked: Asked) -> None:
    items = [an_item("fake-engine", "1.0", WHEEL), an_item("helper", "1.0", OTHER), an_item("torch", "2", OTHER)]
    lock = build_lock(a_report(*items), asked)

    pins = pins_of(lock, asked)

    assert pins.splitlines()[0] == f"fake-engine==1.0 --hash=sha256:{WHEEL}" and "file:" not in pins
    wanted = ["helper==1.0", "torch==2"] if asked is BY_WHEEL else ["fake-engine==1.0", "helper==1.0", "torch==2"]
    assert read_constraints(pins, asked).splitlines() == wanted
    require_pinned(lock, pins, asked)
    require_pinned(lock.replace(f"torch==2 --hash=sha256:{OTHER}\n", ""), pins, asked)
    for other in (pins.replace("torch==2", "torch==3"), pins.replace(OTHER, WHEEL), "", "garbage"):
        with pytest.raises(LockInvalid, match="another"):
            require_pinned(lock, other, asked)


def test_a_lock_in_a_mirror_is_called_after_its_build_and_machine() -> None:
    machine = Machine("linux-x86_64", (2, 36), frozenset(), python=(3, 11))

    assert pins_name(BY_WHEEL, "pypi-cpu", machine) == "fake-engine-1.0-pypi-cpu-linux-x86_64-py3.11.lock"


def test_a_file_of_requirements_is_read_by_name_and_its_comments_are_not() -> None:
    text = (
        "# head\ntorch\n\nNumpy>=1.25.0  # why\nav[x] >=14.2.0\nold_one==1; python_version < '3.9'\npydantic~=2.0\r\n"
    )

    lines = read_requirements(text, what="r.txt")

    assert lines == ["torch", "Numpy>=1.25.0", "av[x] >=14.2.0", "old_one==1; python_version < '3.9'", "pydantic~=2.0"]
    assert requirement_names([*lines, "torch==2.13.0+cpu"]) == ["torch", "numpy", "av", "pydantic"]


def test_a_version_of_a_variant_takes_the_place_of_any_version_and_stands_beside_another_demand() -> None:
    lines = narrow(["torch", "Torch_Vision", "numpy>=1"], ["torch==2.13.0+cpu", "numpy<3", "requests", "torch-vision"])

    assert lines == ["numpy>=1", "torch==2.13.0+cpu", "numpy<3", "requests", "torch-vision"]


@pytest.mark.parametrize(
    "line",
    [
        "--extra-index-url https://evil.example.org/simple", "-r other.txt", "-e .", "./local", "/srv/x.whl", "../x",
        "x @ https://example.org/x.whl", "git+https://example.org/x", "https://example.org/x.whl", "x \\", "--no-index",
        "x --hash=sha256:00", "x>=1 --hash=sha256:00", "x --config-settings=a", "${X}", "x y", "\x00", "[x]", "=1",
    ],
)  # fmt: skip
def test_options_addresses_and_paths_in_it_are_refused_by_name(line: str) -> None:
    with pytest.raises(RequirementsRefused) as caught:
        read_requirements(f"torch\n{line}\n", what="requirements.txt of X 1")

    assert "requirements.txt of X 1" in caught.value.message and "engines.comfyui.dir" in caught.value.hint
