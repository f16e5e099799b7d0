"""What `llmgw weights verify` says of what it found."""

import pytest

from cli.verified import describe
from core.weights import FileState, VerifiedFile, VerifiedWeights

WHOLE = VerifiedFile(path="/w/a", unit="u", state=FileState.WHOLE)


def found(state: FileState, problem: str = "p", remedy: str = "") -> VerifiedWeights:
    return VerifiedWeights(
        files=[WHOLE, VerifiedFile(path="/w/b", unit="u", state=state, problem=problem, remedy=remedy)]
    )


@pytest.mark.parametrize("state", ["differs", "missing", "notAFile", "unreadable", "changing"])
def test_what_is_broken_is_named_with_the_command_that_mends_it(state: str) -> None:
    lines = describe(found(FileState(state), "sha256 aa was fetched, and bb is there"), "a b")

    assert lines[0].split() == [state, "/w/b:", "sha256", "aa", "was", "fetched,", "and", "bb", "is", "there"]
    assert lines[1].strip() == "llmgw weights verify 'a b' --apply"
    assert lines[2] == "1 of 2 files are what was fetched; 1 broken."


def test_what_could_not_be_mended_says_its_own_remedy() -> None:
    assert describe(found(FileState.DIFFERS, remedy="free space there"), "")[1].strip() == "free space there"


@pytest.mark.parametrize(("state", "words"), [("noDigest", "1 without a digest"), ("mended", "1 mended")])
def test_what_is_no_finding_is_counted_and_asks_for_nothing(state: str, words: str) -> None:
    lines = describe(found(FileState(state)), "")

    assert len(lines) == 2 and lines[-1] == f"1 of 2 files are what was fetched; {words}."


def test_what_was_mended_is_not_said_to_be_as_it_was() -> None:
    assert describe(found(FileState.MENDED, "is not there"), "")[0] == "mended     /w/b: before: is not there"


def test_a_runtime_that_runs_with_the_old_file_is_named() -> None:
    assert describe(VerifiedWeights(restart=["r"]), "") == [
        "r still runs with the file as it was: llmgw runtime-restart r",
        "0 of 0 files are what was fetched.",
    ]
