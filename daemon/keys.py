"""Clients' keys: what a new one may look like, which one is meant, and what of it goes to the gateway. Pure.

Of a key only its SHA-256 is kept. That is enough here, and no slow hash is needed: the daemon makes each key from 256
random bits, so there is nothing to guess.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256

import msgspec

from core.api import ApiKey
from core.config.schema import Security
from core.errors import ConflictError, NotFoundError, UsageError
from core.keys import SCOPES, KeyInfo, KeyRules

SECRET_PREFIX = "sk-llmgw-"  # noqa: S105 - what every key begins with, so that scanners of repositories know one
MOST_KEYS = 10_000
MOST_MODELS = 64
LONGEST_MODEL = 256
MOST_PER_MINUTE = 1_000_000_000
MOST_AT_ONCE = 100_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:+-]{0,63}")
_ID = re.compile(r"key_[0-9a-f]{12}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class KeyInvalid(UsageError):
    """A key cannot be made like that."""

    code = "key_invalid"


class KeyExists(ConflictError):
    """The name is taken."""

    code = "key_exists"


class TooManyKeys(ConflictError):
    """There is no room for another key."""

    code = "keys_full"


class KeyUnknown(NotFoundError):
    """No key of that id or name."""

    code = "key_unknown"


class KeyInConfig(ConflictError):
    """The key stands in the config, and only the operator writes there."""

    code = "key_in_config"


class StoredKey(KeyInfo, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key as the daemon keeps it."""

    sha256: str

    def info(self) -> KeyInfo:
        """What may be shown of it."""
        fields = msgspec.structs.asdict(self)
        del fields["sha256"]
        return KeyInfo(**fields)

    def for_gateway(self) -> ApiKey:
        return ApiKey(
            sha256=self.sha256,
            scope=self.scope,
            name=self.name,
            made=True,
            models=self.models,
            expires_s=expiry_s(self),
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
            concurrency=self.concurrency,
        )


def make_key(rules: KeyRules, *, secret: str, key_id: str, now_s: float) -> StoredKey:
    """The key that `secret` is from now on. Raises: KeyInvalid."""
    check_rules(rules)
    expires_s = expiry_s(rules)
    if expires_s and expires_s <= now_s:
        raise KeyInvalid(f"{rules.expires_at} has passed", hint="an expiry lies in the future")
    return StoredKey(
        name=rules.name,
        scope=rules.scope,
        models=list(dict.fromkeys(rules.models)),
        expires_at=format_time(expires_s) if expires_s else "",
        requests_per_minute=rules.requests_per_minute,
        tokens_per_minute=rules.tokens_per_minute,
        concurrency=rules.concurrency,
        id=key_id,
        created_at=format_time(now_s),
        sha256=hash_secret(secret),
    )


def check_rules(rules: KeyRules) -> None:
    """Raises: KeyInvalid."""
    if not _NAME.fullmatch(rules.name) or _ID.fullmatch(rules.name):
        raise KeyInvalid(
            f"{rules.name[:80]!r} is no name for a key", hint="letters, digits and . _ @ : + -, at most 64, no key's id"
        )
    if rules.scope not in SCOPES:
        raise KeyInvalid(f"{rules.scope[:80]!r} is no scope", hint=f"one of {', '.join(SCOPES)}")
    if len(rules.models) > MOST_MODELS:
        raise KeyInvalid(f"a key may name at most {MOST_MODELS} models", hint="use a pattern: 'qwen-*'")
    for model in rules.models:
        if not model or len(model) > LONGEST_MODEL or not model.isprintable() or model != model.strip():
            raise KeyInvalid(f"{model[:80]!r} is neither the id of a model nor a pattern")
    expiry_s(rules)
    limits = (
        ("requests a minute", rules.requests_per_minute, MOST_PER_MINUTE),
        ("tokens a minute", rules.tokens_per_minute, MOST_PER_MINUTE),
        ("requests at once", rules.concurrency, MOST_AT_ONCE),
    )
    for what, value, most in limits:
        if not 0 <= value <= most:
            raise KeyInvalid(f"{value} {what} is no limit", hint=f"1 to {most}, or 0 for none")


def expiry_s(rules: KeyRules) -> float:
    """Seconds since the Unix epoch; 0: never. Raises: KeyInvalid."""
    if not rules.expires_at:
        return 0.0
    try:
        when = datetime.fromisoformat(rules.expires_at)
        if when.tzinfo is None:
            raise ValueError("it has no offset")
        return when.timestamp()
    except (ValueError, OverflowError) as error:
        raise KeyInvalid(
            f"{rules.expires_at[:80]!r} is no time: {error}", hint="RFC 3339, such as 2027-01-31T12:00:00Z"
        ) from None


def add_key(keys: Sequence[StoredKey], new: StoredKey) -> tuple[StoredKey, ...]:
    """All of them. Raises: KeyExists, TooManyKeys."""
    other = next((key for key in keys if key.name == new.name), None)
    if other is not None:
        raise KeyExists(f"there is a key {new.name}, {other.id}", hint=f"another name, or llmgw key revoke {other.id}")
    if len(keys) >= MOST_KEYS:
        raise TooManyKeys(f"there are {len(keys)} keys, and no more are kept", hint="llmgw key revoke those not in use")
    return (*keys, new)


def find_key(keys: Iterable[StoredKey], named: str, *, in_config: Iterable[KeyInfo] = ()) -> StoredKey:
    """The key of this id, else of this name. Raises: KeyUnknown, KeyInConfig."""
    for key in keys:
        if named in (key.id, key.name):
            return key
    if any(named == key.name for key in in_config):
        raise KeyInConfig(f"{named} stands in the config", hint=f"take it out of security.{named}, then llmgw reload")
    # What was typed may be a key itself: it is not repeated.
    shown = f"{named[:64]} " if _NAME.fullmatch(named) and not named.startswith(SECRET_PREFIX) else ""
    raise KeyUnknown(f"there is no key {shown}here", hint="llmgw key list")


def config_keys(security: Security) -> list[tuple[KeyInfo, ApiKey]]:
    """The config's keys, named by where they stand."""
    found = []
    for field, scope, secrets in (
        ("apiKeys", "inference", security.api_keys),
        ("adminApiKeys", "admin", security.admin_api_keys),
    ):
        for index, secret in enumerate(secrets):
            if secret:
                info = KeyInfo(name=f"{field}[{index}]", scope=scope, source="config")
                found.append((info, ApiKey(sha256=hash_secret(secret), scope=scope, name=info.name)))
    return found


def find_fault(key: StoredKey) -> str:
    """What is wrong with a key that was read from a file; empty when nothing is."""
    if not _SHA256.fullmatch(key.sha256):
        return "a hash that is none"
    if not _ID.fullmatch(key.id):
        return f"an id that is none: {key.id[:80]!r}"
    try:
        check_rules(key)
    except KeyInvalid as error:
        return error.message
    return ""


def hash_secret(secret: str) -> str:
    """Lower-case hex of its SHA-256."""
    return sha256(secret.encode()).hexdigest()


def format_time(at_s: float) -> str:
    """RFC 3339, UTC."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
