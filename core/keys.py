"""Wire messages of clients' keys.

GET  /v1/keys         -> KeyList
POST /v1/keys         CreateKeyRequest -> CreatedKey
POST /v1/keys/revoke  RevokeKeyRequest -> RevokedKey

A key itself stands in one message only, the answer to the request that made it; nowhere is it kept, and its hash
never leaves the daemon but in the gateway's route table. A limit of 0 is none.
"""

from core.message import Message

SCOPES = ("inference", "admin")


class KeyRules(Message, frozen=True, kw_only=True):
    """What a key may do."""

    name: str
    """What logs, metrics and usage call it."""
    scope: str = "inference"
    """`inference`, or `admin`, which includes it."""
    models: list[str] = []
    """Ids, or patterns with `*` and `?`; none: every model."""
    expires_at: str = ""
    """RFC 3339 with an offset; empty: never."""
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    concurrency: int = 0
    """Requests at once."""


class KeyInfo(KeyRules, frozen=True, kw_only=True):
    """A key as `llmgw key list` shows it."""

    id: str = ""
    """Empty for one that stands in the config."""
    source: str = "made"
    """`made` by `llmgw key create`, or `config`."""
    created_at: str = ""


class KeyList(Message, frozen=True, kw_only=True):
    keys: list[KeyInfo] = []


class CreateKeyRequest(KeyRules, frozen=True, kw_only=True):
    dry: bool = False
    """Only say what would be made."""


class CreatedKey(Message, frozen=True, kw_only=True):
    key: KeyInfo
    secret: str = ""
    """The key itself, this once; empty when nothing was made."""


class RevokeKeyRequest(Message, frozen=True, kw_only=True):
    key: str
    """Its id or its name."""
    apply: bool = False
    """False: only say what would be revoked."""


class RevokedKey(Message, frozen=True, kw_only=True):
    key: KeyInfo
