"""Who may ask for what: one pure decision per request.

Access classes: `public` (liveness, the index page), `inference` (`/v1/*`), `admin` (everything below `/gateway/`
except what is public). A key is a Bearer token or `x-api-key`; a usable Bearer token wins when both are there.
Only hashes are known here. The SHA-256 of what the client sent is looked up in a table: nothing about a key can be
learnt from the time that takes, for no byte of a key is ever compared, and nobody can choose the bytes of a hash.

Open access (no key needed) exists only on loopback, and twice over: the configured bind host must be a loopback
address *and* the peer must be one. So neither a socket unit that was edited to listen elsewhere nor a proxy header can
open a gateway whose config says loopback.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv6Address, ip_address

from core.api import ApiKey, SecurityPolicy
from gateway.errors import unauthorized


class Access(StrEnum):
    """What a route demands."""

    PUBLIC = "public"
    INFERENCE = "inference"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Keys and rules of one route table, ready to be asked."""

    loopback: bool
    allow_missing: bool
    inference: Mapping[bytes, str]
    """SHA-256 digest -> the key's name, of every key that the inference class accepts."""
    admin: Mapping[bytes, str]
    """Likewise for the admin class: the admin keys, or, where there are none, the inference keys."""
    has_admin_keys: bool


def compile_policy(keys: Sequence[ApiKey], security: SecurityPolicy) -> AccessPolicy:
    """Index the table's keys. A key whose hash is not one is dropped: it can open nothing."""
    inference: dict[bytes, str] = {}
    admin: dict[bytes, str] = {}
    for key in keys:
        digest = _digest_of(key)
        if digest is not None:
            name = key.name or key.sha256[:8].lower()
            inference[digest] = name
            if key.scope == "admin":
                admin[digest] = name
    return AccessPolicy(
        loopback=is_loopback(security.bind_host),
        allow_missing=security.allow_missing_auth,
        inference=inference,
        admin=admin or inference,
        has_admin_keys=bool(admin),
    )


def _digest_of(key: ApiKey) -> bytes | None:
    try:
        digest = bytes.fromhex(key.sha256)
    except ValueError:
        return None
    return digest if len(digest) == sha256().digest_size else None


def decide(access: Access, credential: bytes, peer: str, policy: AccessPolicy) -> str:
    """Allow the request and name its key (empty: open access), or raise the one `unauthorized`.

    `credential` is what `find_credential` gave, `peer` the client's address (empty: a unix socket).
    """
    if access is Access.PUBLIC:
        return ""
    keys = policy.admin if access is Access.ADMIN else policy.inference
    if credential:
        name = keys.get(sha256(credential).digest())
        if name is not None:
            return name
    if _is_open(access, peer, policy):
        return ""
    raise unauthorized()


def _is_open(access: Access, peer: str, policy: AccessPolicy) -> bool:
    if access is Access.ADMIN and policy.has_admin_keys:
        return False
    return policy.allow_missing and policy.loopback and (not peer or is_loopback(peer))


def find_credential(authorization: bytes, x_api_key: bytes) -> bytes:
    """The key that a request presents, as bytes; empty when it presents none that we could check."""
    if authorization[:7].lower() == b"bearer ":
        token = authorization[7:].strip()
        if token:
            return token
    return x_api_key.strip()


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine only. `127.evil.example` does not."""
    bare = _bare_host(host.strip().lower())
    if bare == "localhost":
        return True
    try:
        address = ip_address(bare)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _bare_host(host: str) -> str:
    """Without brackets, port and zone."""
    if host.startswith("["):
        host, _, rest = host[1:].partition("]")
        if rest and not rest.startswith(":"):
            return ""
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    return host.partition("%")[0]
