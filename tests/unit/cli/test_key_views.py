"""How an expiry is typed, and how keys read in a terminal."""

from datetime import UTC, datetime

import pytest

from cli.key_views import KEY_COLUMNS, ExpiryInvalid, describe_key, key_row, read_expiry
from core.keys import KeyInfo

NOW = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", ""),
        ("30d", "2027-02-14T08:00:00Z"),
        ("12h", "2027-01-15T20:00:00Z"),
        ("90min", "2027-01-15T09:30:00Z"),
        ("2w", "2027-01-29T08:00:00Z"),
        ("2027-01-31", "2027-02-01T00:00:00Z"),
        ("2027-01-15", "2027-01-16T00:00:00Z"),
        ("2027-01-31T12:00:00Z", "2027-01-31T12:00:00Z"),
        ("2027-01-31T12:00:00+02:00", "2027-01-31T10:00:00Z"),
    ],
)
def test_an_expiry_is_a_span_a_day_or_a_time(text: str, want: str) -> None:
    assert read_expiry(text, NOW) == want


@pytest.mark.parametrize(
    "text",
    ["0d", "-1d", "1y", "d", "1.5h", "2027-01-14", "2026-01-01T00:00:00Z", "2027-02-30", "2027-01-31T12:00:00", "x",
     "999999w", "9999-12-31", "１d"],
)  # fmt: skip
def test_what_is_no_time_to_come_is_refused(text: str) -> None:
    with pytest.raises(ExpiryInvalid) as caught:
        read_expiry(text, NOW)
    assert "30d" in caught.value.hint


def test_a_row_says_what_a_key_may_do_and_whether_it_still_may() -> None:
    key = KeyInfo(
        name="a", id="key_1", scope="admin", models=["m", "q-*"], expires_at="2027-01-15T08:00:00Z", tokens_per_minute=9
    )
    row = dict(zip(KEY_COLUMNS, key_row(key, NOW), strict=True))
    assert row == {
        "NAME": "a", "ID": "key_1", "SCOPE": "admin", "MODELS": "m, q-*", "EXPIRES": "2027-01-15T08:00:00Z (expired)",
        "REQUESTS/MIN": "-", "TOKENS/MIN": "9", "AT ONCE": "-", "FROM": "made",
    }  # fmt: skip
    assert describe_key(key) == "a (key_1): for admin, models m, q-*, until 2027-01-15T08:00:00Z, 9 tokens a minute"


def test_a_key_of_the_config_has_no_id_and_no_end() -> None:
    key = KeyInfo(name="apiKeys[0]", source="config")
    assert key_row(key, NOW) == ("apiKeys[0]", "-", "inference", "all", "never", "-", "-", "-", "config")
    assert describe_key(key) == "apiKeys[0]: for inference, all models"
