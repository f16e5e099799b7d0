"""Why pip found nothing, by what it printed of its search: recorded from pip 23.0.1 and 26.3 and an index on loopback.

The index has `othertag` 1.0 for two other machines, `otherver` in 2.0, `reqpy` 1.0 for another Python, `sdist` 1.0 as
source; of `login` it has a page for people.
"""

from pathlib import Path

import pytest

from engines.packages import Packages
from engines.pip_search import Missing, PipSearch, Reason, judge_search, read_missing, read_search, search_words
from engines.pypi import Wheel, explain_failure

_DATA = Path(__file__).parents[2] / "data/pip"


def recorded(pip: str, name: str) -> str:
    sections = (_DATA / f"search-{pip}.txt").read_text().split("=== ")
    return next(section for section in sections if section.startswith(f"{name}\n"))


def reason_of(pip: str, name: str, version: str = "1.0") -> Reason | None:
    return judge_search(Missing(name, version), read_search(recorded(pip, name), name), setting="engines.mirror")


@pytest.mark.parametrize("pip", ["23.0.1", "26.3"])
@pytest.mark.parametrize(
    ("name", "what", "hint", "is_unfit"),
    [
        ("nosuch", "knows no package nosuch (404)", "that of an index", False),
        ("othertag", "has othertag 1.0 for other machines alone: cp27-cp27m-win_amd64, cp39-cp39-manylinux2014_aarch64",
         "engine plan", True),
        ("otherver", "has no otherver 1.0, but 2.0", "bring it up to date", False),
        ("reqpy", "has reqpy 1.0 for Python >=3.99 alone, and this is 3.11.2", "engine plan", True),
        ("sdist", "has sdist 1.0 as source alone", "put a wheel", False),
        ("code401", "refuses to say whether it has code401 1.0 (401)", "password", False),
        ("code500", "answers 500 when it is asked for code500", "later", False),
    ],
)  # fmt: skip
def test_each_reason_is_told_with_what_to_do(pip: str, name: str, what: str, hint: str, is_unfit: bool) -> None:
    reason = reason_of(pip, name)
    assert reason is not None
    assert what in reason.what and hint in reason.hint
    assert reason.is_unfit is is_unfit


@pytest.mark.parametrize("pip", ["23.0.1", "26.3"])
def test_what_the_search_does_not_tell_is_not_guessed(pip: str) -> None:
    assert reason_of(pip, "login") is None
    assert reason_of(pip, "otherver", "2.0") is None, "it is there: something else was wrong with it"
    assert reason_of(pip, "otherver", "") is None
    assert judge_search(Missing("x"), read_search("", "x"), setting="s") is None


def test_a_version_is_told_from_another_and_a_package_from_one_of_a_longer_name() -> None:
    text = "".join(
        f"  Skipping link: none of the wheel's tags (x) are compatible (run pip debug): https://i/{file}#sha256=0 (from https://i/)\n"
        for file in ("torch-2.13.0%2Bcpu-cp314-cp314-win_amd64.whl", "torch_more-9.0-py3-none-win32.whl")
    )
    seen = read_search(text, "torch")
    assert seen.unfit == [("2.13.0+cpu", "cp314-cp314-win_amd64")]
    told = judge_search(Missing("torch", "2.13.0"), seen, setting="s")
    assert told is not None and told.what == "has no torch 2.13.0, but 2.13.0+cpu"


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("ERROR: No matching distribution found for torch==2.13.0+cpu; x", Missing("torch", "2.13.0+cpu")),
        ("ERROR: No matching distribution found for helper[all]>=2", Missing("helper")),
        ("ERROR: No matching distribution found for ruamel.yaml", Missing("ruamel.yaml")),
        ("ERROR: something else", None),
    ],
)
def test_what_was_missing_is_read(said: str, missing: Missing | None) -> None:
    assert read_missing(said) == missing


def test_a_search_asks_where_the_failed_command_did_and_downloads_nothing() -> None:
    argv = search_words(PipSearch(("python", "pip"), ("--no-index", "--find-links", "/w"), {}, Path("/s")), "pkg")
    assert argv[:4] == ("python", "pip", "index", "versions") and argv[-4:] == (
        "--no-index",
        "--find-links",
        "/w",
        "pkg",
    )


@pytest.mark.parametrize(("is_unfit", "code"), [(True, "package_unfit"), (False, "package_unavailable")])
def test_a_reason_is_an_error_of_its_own(is_unfit: bool, code: str) -> None:
    output = b"ERROR: No matching distribution found for helper==2"
    reason = Reason("has it not", "do this", is_unfit)
    error = explain_failure(Wheel("pkg", "1.0"), output, Path("/s"), Packages(), reason)
    assert (error.code, error.message, error.hint) == (
        code, "the package index has it not; pkg 1.0 needs it", "do this"
    )  # fmt: skip
