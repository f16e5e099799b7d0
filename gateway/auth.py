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
from core.clock import Clock
from gateway.errors import unauthorized
from gateway.grant import OPEN, Grant


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
    inference: Mapping[bytes, Grant]
    """SHA-256 digest -> what the key grants, of every key that the inference class accepts."""
    admin: Mapping[bytes, Grant]
    """Likewise for the admin class: the admin keys, or, where there are none, the config's inference keys."""
    has_admin_keys: bool
    """Also when all have expired, and when they cannot be read: administration must not open by itself."""


def compile_policy(keys: Sequence[ApiKey], security: SecurityPolicy) -> AccessPolicy:
    """Index the table's keys. A key whose hash is not one is dropped: it can open nothing."""
    inference: dict[bytes, Grant] = {}
    admin: dict[bytes, Grant] = {}
    instead: dict[bytes, Grant] = {}
    for key in keys:
        digest = _digest_of(key)
        if digest is not None:
            grant = inference[digest] = Grant(key.name or "unnamed", key)
            if key.scope == "admin":
                admin[digest] = grant
            elif not key.made:
                instead[digest] = grant
    has_admin_keys = bool(admin) or security.only_admin_keys
    return AccessPolicy(
        loopback=is_loopback(security.bind_host),
        allow_missing=security.allow_missing_auth,
        inference=inference,
        admin=admin if has_admin_keys else instead,
        has_admin_keys=has_admin_keys,
    )


def _digest_of(key: ApiKey) -> bytes | None:
    try:
        digest = bytes.fromhex(key.sha256)
    except ValueError:
        return None
    return digest if len(digest) == sha256().digest_size else None


def decide(access: Access, credential: bytes, peer: str, policy: AccessPolicy, clock: Clock) -> Grant:
    """What the request's key grants (`OPEN`: none is needed), or raise the one `unauthorized`.

    `credential` is what `find_credential` gave, `peer` the client's address (empty: a unix socket).
    """
    if access is Access.PUBLIC:
        return OPEN
    keys = policy.admin if access is Access.ADMIN else policy.inference
    if credential:
        grant = keys.get(digest_of(credential))
        if grant is not None and not has_expired(grant, clock):
            return grant
    if _is_open(access, peer, policy):
        return OPEN
    raise unauthorized()


def has_expired(grant: Grant, clock: Clock) -> bool:
    """By the wall clock, in which an expiry is said."""
    return grant.expires_s > 0 and clock.wall_s() >= grant.expires_s


def _is_open(access: Access, peer: str, policy: AccessPolicy) -> bool:
    if access is Access.ADMIN and policy.has_admin_keys:
        return False
    return policy.allow_missing and policy.loopback and (not peer or is_loopback(peer))


class CredentialDigest(bytes):
    """The SHA-256 of a credential that was presented before: how a job asks for who made it, without keeping the key.

    Only this process makes one. What comes over the wire is plain bytes, whatever it says.
    """


def digest_of(credential: bytes) -> bytes:
    """What a credential is looked up by."""
    return credential if isinstance(credential, CredentialDigest) else sha256(credential).digest()


def find_credential(authorization: bytes, x_api_key: bytes) -> bytes:
    """The key that a request presents, as bytes; empty when it presents none that we could check."""
    if authorization[:7].lower() == b"bearer ":
        token = authorization[7:].strip()
        if token:
            return token
    return x_api_key if isinstance(x_api_key, CredentialDigest) else x_api_key.strip()


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
