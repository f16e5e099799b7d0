"""How keys read in a terminal, and how an expiry is typed. Pure."""

import re
from datetime import UTC, datetime, timedelta

from core.errors import UsageError
from core.keys import KeyInfo

KEY_COLUMNS = ("NAME", "ID", "SCOPE", "MODELS", "EXPIRES", "REQUESTS/MIN", "TOKENS/MIN", "AT ONCE", "FROM")

_SPAN = re.compile(r"([0-9]{1,6})(min|h|d|w)")
_UNITS = {"min": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


class ExpiryInvalid(UsageError):
    """What was typed is no time to come."""

    code = "key_invalid"


def read_expiry(text: str, now: datetime) -> str:
    """`30d` from now, the end of the day `2027-01-31` (UTC), or a time of RFC 3339, as RFC 3339. Empty stays empty.

    Raises: ExpiryInvalid.
    """
    if not text:
        return ""
    span = _SPAN.fullmatch(text)
    try:
        if span is not None:
            when = now + int(span[1]) * _UNITS[span[2]]
        elif re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            when = datetime.fromisoformat(text).replace(tzinfo=UTC) + timedelta(days=1)
        else:
            when = datetime.fromisoformat(text)
        if when.tzinfo is None:
            raise ValueError("it has no offset")
        if when <= now:
            raise ValueError("it has passed")
        return when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError) as error:
        hint = "30d, 12h, 90min, 2027-01-31, or 2027-01-31T12:00:00Z"
        raise ExpiryInvalid(f"{text!r} is no expiry: {error}", hint=hint) from None


def is_expired(key: KeyInfo, now: datetime) -> bool:
    try:
        return bool(key.expires_at) and datetime.fromisoformat(key.expires_at) <= now
    except (ValueError, TypeError):
        return False


def key_row(key: KeyInfo, now: datetime) -> tuple[str, ...]:
    """One key under `KEY_COLUMNS`."""
    expires = key.expires_at or "never"
    return (
        key.name,
        key.id or "-",
        key.scope,
        ", ".join(key.models) or "all",
        f"{expires} (expired)" if is_expired(key, now) else expires,
        *(str(limit or "-") for limit in (key.requests_per_minute, key.tokens_per_minute, key.concurrency)),
        key.source,
    )


def describe_key(key: KeyInfo) -> str:
    """A key in one line."""
    facts = [
        f"for {key.scope}",
        f"models {', '.join(key.models)}" if key.models else "all models",
        f"until {key.expires_at}" if key.expires_at else "",
        f"{key.requests_per_minute} requests a minute" if key.requests_per_minute else "",
        f"{key.tokens_per_minute} tokens a minute" if key.tokens_per_minute else "",
        f"{key.concurrency} at once" if key.concurrency else "",
    ]
    return f"{key.name}{f' ({key.id})' if key.id else ''}: {', '.join(fact for fact in facts if fact)}"
