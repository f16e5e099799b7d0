"""Words in unit files: what `quote_word` writes, `split_words` gives back; and systemd's grammar as a table."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from units.words import (
    MAX_WORD_BYTES,
    WordRefused,
    WordsUnreadable,
    escape_line,
    quote_word,
    split_words,
    unescape_line,
)


def _is_carried(text: str) -> bool:
    try:
        quote_word(text)
    except WordRefused:
        return False
    return True


TEXT = st.text(max_size=40).filter(_is_carried)
NASTY = st.text(alphabet="\\\"'$%{}; \u00a0aX-#=[]é", max_size=20).filter(_is_carried)
WORDS = st.lists(st.one_of(TEXT, NASTY), max_size=6)


@given(WORDS)
@example(["", "$", "$$", "${X}", "$X", "%", "%%", "%n", ";", "\\;", '"', "'", "\\", " ", "a b", "-", "#"])
def test_what_is_quoted_is_read_back_word_by_word(words: list[str]) -> None:
    line = " ".join(quote_word(word) for word in words)
    assert "\n" not in line
    assert split_words(line, {"X": "forged value", "": "forged"}) == words


@given(WORDS)
def test_where_dollars_mean_nothing_they_stay(words: list[str]) -> None:
    line = " ".join(quote_word(word, directive="Environment", dollars=False) for word in words)
    assert split_words(line) == words


@given(st.text(max_size=40))
def test_a_line_value_is_read_back_or_refused(value: str) -> None:
    try:
        line = escape_line(value, directive="WorkingDirectory")
    except WordRefused:
        return
    assert unescape_line(line) == value
    assert not line.endswith("\\")


@given(st.text(alphabet="\\\"'$%{} ;xuU0123abn\u00e9", max_size=30))
def test_reading_any_line_gives_words_or_one_error(line: str) -> None:
    try:
        words = split_words(line, {"a": "x y"}, {"n": "unit"})
    except WordsUnreadable:
        return
    assert all("\x00" not in word for word in words)


@pytest.mark.parametrize(
    "value",
    ["a\nb", "a\rb", "a\x00b", "\t", "\x1b[2J", "\x7f", "\x85", "\x9f", "\ud800", "\udcff", "\ufdd0", "\uffff",
     "\U0001fffe", "x" * (MAX_WORD_BYTES + 1), "é" * (MAX_WORD_BYTES // 2 + 1)],
)  # fmt: skip
def test_what_no_unit_file_can_carry_is_refused_by_the_name_of_its_directive(value: str) -> None:
    with pytest.raises(WordRefused, match="Environment"):
        quote_word(value, directive="Environment")
    with pytest.raises(WordRefused, match="Description"):
        escape_line(value, directive="Description")


@pytest.mark.parametrize("value", [" a", "a ", "a\\", "\\", "\u2003a"])
def test_a_line_value_that_would_be_read_differently_is_refused(value: str) -> None:
    with pytest.raises(WordRefused):
        escape_line(value, directive="WorkingDirectory")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("  a \t b  ", ["a", "b"]),
        ('a"b c"d', ["ab cd"]),
        ("'a \"b'", ['a "b']),
        ('"a \'b"', ["a 'b"]),
        ('""', [""]),
        (r"\x41\101\u0042\U00000043\s\n\\", ["AABC \n\\"]),
        (r"\xc3\xa9", ["é"]),
        ("$X", ["one", "two three"]),
        ("${X}", ["one 'two three'"]),
        ("a$X", ["a$X"]),
        ("a${X}b$$", ["aone 'two three'b$"]),
        ("$NOTHING ${NOTHING}", [""]),
        ("$", []),
        ("$$X", ["$X"]),
        ("%%n %n", ["%n", "unit.service"]),
        (r"\; a", [";", "a"]),
        ('";" a', [";", "a"]),
        ("a;b", ["a;b"]),
        ("'$X'", ["one", "two three"]),  # quotes are gone before variables are filled in
    ],
)
def test_lines_are_split_as_systemd_splits_them(line: str, words: list[str]) -> None:
    assert split_words(line, {"X": "one 'two three'"}, {"n": "unit.service"}) == words


@pytest.mark.parametrize("line", ['"a', "'", "a\\", r"\q", r"\x4", r"\x00", r"\xff", r"\ud800", "%q", "a ; b", "%"])
def test_what_systemd_would_refuse_or_run_twice_is_unreadable(line: str) -> None:
    with pytest.raises(WordsUnreadable):
        split_words(line, {})


def test_the_words_that_need_no_quotes_are_left_bare() -> None:
    assert quote_word("/usr/bin/llama-server") == "/usr/bin/llama-server"
    assert quote_word("--port=8201") == "--port=8201"
    assert quote_word("") == '""'
    assert quote_word("50%") == "50%%"
    assert quote_word("$HOME") == "$$HOME"
