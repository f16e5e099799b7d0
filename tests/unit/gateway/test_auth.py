"""The table of who may ask: class x bind x peer x keys configured x key presented."""

from dataclasses import dataclass

import pytest

from core.api import ApiKey, SecurityPolicy
from gateway.auth import Access, compile_policy, decide, find_credential, is_loopback
from gateway.errors import ApiError
from tests.unit.gateway.hand_clock import HandClock
from tests.unit.gateway.tables import key

PUB, INF, ADM = Access.PUBLIC, Access.INFERENCE, Access.ADMIN
USER, ADMIN = key("user", name="user"), key("root", "admin", "root")
NONE: tuple[ApiKey, ...] = ()
LOOP, WIDE, LAN = "127.0.0.1", "0.0.0.0", "10.0.0.7"
NO = None
"""The decision: refused."""


@dataclass(frozen=True)
class Row:
    """One case: what is asked by whom of which gateway, and the key's name that the decision gives."""

    access: Access
    bind: str
    peer: str
    keys: tuple[ApiKey, ...]
    open: bool
    sent: bytes
    want: str | None


ROWS = [
    # Public is public, everywhere.
    Row(PUB, LOOP, LOOP, NONE, True, b"", ""),
    Row(PUB, WIDE, LAN, (USER, ADMIN), False, b"", ""),
    Row(PUB, WIDE, LAN, NONE, False, b"wrong", ""),
    # Loopback, open: no key needed, a wrong one does not hurt (SDKs insist on sending something).
    Row(INF, LOOP, LOOP, NONE, True, b"", ""),
    Row(INF, LOOP, LOOP, NONE, True, b"anything", ""),
    Row(INF, LOOP, LOOP, (USER,), True, b"", ""),
    Row(INF, LOOP, LOOP, (USER,), True, b"wrong", ""),
    Row(INF, LOOP, LOOP, (USER,), True, b"user", "user"),
    Row(INF, LOOP, LOOP, (USER, ADMIN), True, b"root", "root"),
    Row(INF, "localhost", "::1", NONE, True, b"", ""),
    Row(INF, "::1", "::1", NONE, True, b"", ""),
    Row(INF, "[::1]", "::ffff:127.0.0.1", NONE, True, b"", ""),
    Row(INF, LOOP, "", NONE, True, b"", ""),
    Row(INF, "127.0.0.53", "127.9.9.9", NONE, True, b"", ""),
    # Loopback, closed: a key of either kind.
    Row(INF, LOOP, LOOP, NONE, False, b"", NO),
    Row(INF, LOOP, LOOP, NONE, False, b"anything", NO),
    Row(INF, LOOP, LOOP, (USER,), False, b"", NO),
    Row(INF, LOOP, LOOP, (USER,), False, b"wrong", NO),
    Row(INF, LOOP, LOOP, (USER,), False, b"user", "user"),
    Row(INF, LOOP, LOOP, (ADMIN,), False, b"root", "root"),
    Row(INF, LOOP, "", (USER,), False, b"", NO),
    # Configured for loopback, reached from elsewhere (an edited socket unit): never open.
    Row(INF, LOOP, LAN, NONE, True, b"", NO),
    Row(INF, LOOP, LAN, (USER,), True, b"", NO),
    Row(INF, LOOP, LAN, (USER,), True, b"user", "user"),
    Row(INF, LOOP, "2001:db8::1", NONE, True, b"", NO),
    Row(ADM, LOOP, LAN, NONE, True, b"", NO),
    # Off loopback: allowMissingAuth means nothing, wherever the peer is.
    Row(INF, WIDE, LAN, NONE, True, b"", NO),
    Row(INF, WIDE, LOOP, NONE, True, b"", NO),
    Row(INF, "::", "::1", NONE, True, b"", NO),
    Row(INF, WIDE, LAN, NONE, True, b"anything", NO),
    Row(INF, WIDE, LAN, (USER,), True, b"", NO),
    Row(INF, WIDE, LAN, (USER,), True, b"wrong", NO),
    Row(INF, WIDE, LAN, (USER,), True, b"user", "user"),
    Row(INF, WIDE, LAN, (ADMIN,), False, b"root", "root"),
    Row(INF, "127.evil.example", LOOP, NONE, True, b"", NO),
    Row(INF, "gpu-3.internal", LOOP, NONE, True, b"", NO),
    Row(INF, "", LOOP, NONE, True, b"", NO),
    # Admin on loopback: admin keys, once there are any, are demanded even where loopback is open.
    Row(ADM, LOOP, LOOP, NONE, True, b"", ""),
    Row(ADM, LOOP, LOOP, (USER,), True, b"", ""),
    Row(ADM, LOOP, LOOP, (USER,), True, b"user", "user"),
    Row(ADM, LOOP, LOOP, (ADMIN,), True, b"", NO),
    Row(ADM, LOOP, LOOP, (USER, ADMIN), True, b"user", NO),
    Row(ADM, LOOP, LOOP, (USER, ADMIN), True, b"root", "root"),
    Row(ADM, LOOP, LOOP, (USER, ADMIN), False, b"wrong", NO),
    Row(ADM, LOOP, LOOP, NONE, False, b"", NO),
    # Admin off loopback: an admin key, or an inference key where no admin key exists.
    Row(ADM, WIDE, LAN, NONE, True, b"", NO),
    Row(ADM, WIDE, LAN, (USER,), True, b"", NO),
    Row(ADM, WIDE, LAN, (USER,), True, b"user", "user"),
    Row(ADM, WIDE, LAN, (USER, ADMIN), True, b"user", NO),
    Row(ADM, WIDE, LAN, (USER, ADMIN), True, b"root", "root"),
    Row(ADM, WIDE, LOOP, (ADMIN,), True, b"", NO),
    # Hostile or odd credentials.
    Row(INF, WIDE, LAN, (USER,), False, b"user\x00", NO),
    Row(INF, WIDE, LAN, (USER,), False, b"USER", NO),
    Row(INF, WIDE, LAN, (USER,), False, USER.sha256.encode(), NO),
    Row(INF, WIDE, LAN, (USER,), False, b"x" * 60_000, NO),
    Row(INF, WIDE, LAN, (ApiKey(sha256=""),), False, b"", NO),
    Row(INF, WIDE, LAN, (ApiKey(sha256="zz" * 32),), False, b"zz", NO),
    Row(INF, WIDE, LAN, (ApiKey(sha256="ab"),), False, b"ab", NO),
    Row(INF, WIDE, LAN, (key(""),), False, b"", NO),
    Row(INF, WIDE, LAN, (key("schlüssel", name="ü"),), False, "schlüssel".encode(), "ü"),
]


@pytest.mark.parametrize("row", ROWS, ids=[str(number) for number in range(len(ROWS))])
def test_the_decision_follows_the_table(row: Row) -> None:
    policy = compile_policy(row.keys, SecurityPolicy(bind_host=row.bind, allow_missing_auth=row.open))
    if row.want is None:
        with pytest.raises(ApiError) as caught:
            decide(row.access, row.sent, row.peer, policy, HandClock())
        assert caught.value.http_status == 401
    else:
        assert decide(row.access, row.sent, row.peer, policy, HandClock()).name == row.want


def test_every_refusal_is_the_same_bytes() -> None:
    bodies = set()
    for row in ROWS:
        policy = compile_policy(row.keys, SecurityPolicy(bind_host=row.bind, allow_missing_auth=row.open))
        try:
            decide(row.access, row.sent, row.peer, policy, HandClock())
        except ApiError as error:
            bodies.add((error.http_status, error.body(), tuple(error.headers())))
    assert len(bodies) == 1


@pytest.mark.parametrize(
    ("authorization", "x_api_key", "want"),
    [
        (b"Bearer abc", b"", b"abc"),
        (b"bearer abc", b"", b"abc"),
        (b"BEARER  abc ", b"", b"abc"),
        (b"Bearer abc", b"def", b"abc"),
        (b"Bearer ", b"def", b"def"),
        (b"Bearer", b"def", b"def"),
        (b"Basic abc", b"def", b"def"),
        (b"Basic abc", b"", b""),
        (b"abc", b"", b""),
        (b"", b" def ", b"def"),
        (b"", b"", b""),
        (b"Bearer a b", b"", b"a b"),
        (b"Bearer\tabc", b"", b""),
    ],
)
def test_a_usable_bearer_token_wins_over_x_api_key(authorization: bytes, x_api_key: bytes, want: bytes) -> None:
    assert find_credential(authorization, x_api_key) == want


@pytest.mark.parametrize(
    ("host", "want"),
    [
        ("127.0.0.1", True),
        ("127.255.0.9", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("localhost:8100", True),
        ("127.0.0.1:8100", True),
        ("::1", True),
        ("[::1]", True),
        ("[::1]:8100", True),
        ("0:0:0:0:0:0:0:1", True),
        ("::ffff:127.0.0.1", True),
        ("::1%lo", True),
        ("", False),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("127.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("2130706433", False),
        ("127.1", False),
        ("::ffff:10.0.0.1", False),
        ("[", False),
        ("[::1].evil", False),
        ("[::1]:", True),
    ],
)
def test_loopback_is_an_address_and_not_a_prefix(host: str, want: bool) -> None:
    assert is_loopback(host) is want
