"""Until when a certificate is good. Pure.

Python's `ssl` tells this of the other end's certificate and not of one's own. Of the DER form (X.509, RFC 5280 4.1) the
path to the second date is walked: certificate, what is signed of it, then version, serial number, algorithm and issuer
are passed over, and of the validity the first date.
"""

import re
import ssl
from datetime import UTC, datetime

_SEQUENCE = 0x30
_VERSION = 0xA0
_UTC_TIME = 0x17
_GENERALIZED_TIME = 0x18
_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def read_expiry(pem: bytes) -> float | None:
    """The end of the first certificate's validity, in seconds since the epoch; None where it cannot be read."""
    block = _BLOCK.search(pem)
    if block is None:
        return None
    try:
        der = ssl.PEM_cert_to_DER_cert(block[0].decode("ascii"))
        signed, _ = _enter(*_enter(der, 0, _SEQUENCE), _SEQUENCE)
        at = 0
        if signed[at] == _VERSION:
            at = _pass(signed, at)
        for _ in ("serial number", "algorithm", "issuer"):
            at = _pass(signed, at)
        validity, _ = _enter(signed, at, _SEQUENCE)
        return _read_time(validity, _pass(validity, 0))
    except (ValueError, IndexError):
        return None


def _header(data: bytes, at: int) -> tuple[int, int, int]:
    """Tag, begin and end of the value at `at`."""
    tag, length, begin = data[at], data[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(data[begin : begin + size])
        begin += size
    if begin + length > len(data):
        raise ValueError("a value ends behind the end")
    return tag, begin, begin + length


def _enter(data: bytes, at: int, expected: int) -> tuple[bytes, int]:
    """What stands inside of a value, and where that begins in it: always 0."""
    tag, begin, end = _header(data, at)
    if tag != expected:
        raise ValueError(f"expected tag {expected:#x}, found {tag:#x}")
    return data[begin:end], 0


def _pass(data: bytes, at: int) -> int:
    return _header(data, at)[2]


def _read_time(data: bytes, at: int) -> float:
    tag, begin, end = _header(data, at)
    text = data[begin:end].decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
