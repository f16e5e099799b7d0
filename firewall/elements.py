"""Elements of named sets: between libnftables' JSON and ranges of numbers. Pure.

The same addresses can be written as ranges, prefixes or single values, and what is read back is not written as it was
sent. As merged ranges of numbers they can be compared. Single addresses with a comment each are members; they are put
in order, and nothing else.
"""

import ipaddress
import json
from collections.abc import Iterable, Mapping

from core.networks import Network
from firewall.policy import merge_ranges

Range = tuple[int, int]
Member = tuple[int, str]
"""An address as a number, and its comment."""

PORTS, IPV4, IPV6 = "inet_service", "ipv4_addr", "ipv6_addr"
_BITS = {PORTS: 16, IPV4: 32, IPV6: 128}


def network_ranges(networks: Iterable[Network], version: int) -> tuple[Range, ...]:
    """The networks of one IP version."""
    return merge_ranges(
        (int(network.network_address), int(network.broadcast_address))
        for network in networks
        if network.version == version
    )


def build_elements(kind: str, ranges: Iterable[Range]) -> list[object]:
    """As libnftables takes them: a value, a prefix where the range is one, else a range."""
    return [_build_element(kind, low, high) for low, high in ranges]


def _build_element(kind: str, low: int, high: int) -> object:
    if low == high:
        return _value(kind, low)
    size = high - low + 1
    if kind != PORTS and size & (size - 1) == 0 and low % size == 0:
        return {"prefix": {"addr": _value(kind, low), "len": _BITS[kind] - size.bit_length() + 1}}
    return {"range": [_value(kind, low), _value(kind, high)]}


def read_elements(kind: str, elements: object) -> tuple[Range, ...] | None:
    """Merged ranges; None for what we never write (other types, timeouts, comments on an element)."""
    if elements is None:
        return ()
    if not isinstance(elements, list) or kind not in _BITS:
        return None
    ranges = [_read_element(kind, element) for element in elements]
    known = [item for item in ranges if item is not None]
    return merge_ranges(known) if len(known) == len(ranges) else None


def _read_element(kind: str, element: object) -> Range | None:
    try:
        match element:
            case bool():
                return None
            case int() | str():
                number = _number(kind, element)
                return number, number
            case {"range": [low, high], **rest} if not rest:
                return _number(kind, low), _number(kind, high)
            case {"prefix": {"addr": str(address), "len": int(length)}, **rest} if not rest and kind != PORTS:
                network = ipaddress.ip_network(f"{address}/{length}")
                return int(network.network_address), int(network.broadcast_address)
    except ValueError:
        pass
    return None


def build_members(kind: str, members: Iterable[Member]) -> list[object]:
    """As libnftables takes them."""
    return [{"elem": {"val": _value(kind, number), "comment": comment}} for number, comment in members]


def read_members(kind: str, elements: object) -> list[Member] | None:
    """In order; None for what we never write: no list, or anything but an address with a comment and nothing else."""
    if not isinstance(elements, list) or kind == PORTS or kind not in _BITS:
        return None
    members: list[Member] = []
    for element in elements:
        match element:
            case {"elem": {"val": str(value), "comment": str(comment), **rest}, **more} if not rest and not more:
                try:
                    members.append((_number(kind, value), comment))
                except ValueError:
                    return None
            case _:
                return None
    return sorted(members)


def _value(kind: str, number: int) -> object:
    if kind == PORTS:
        return number
    return str(ipaddress.IPv4Address(number) if kind == IPV4 else ipaddress.IPv6Address(number))


def _number(kind: str, value: object) -> int:
    """Raises: ValueError."""
    if kind == PORTS and isinstance(value, int):
        return value
    if kind != PORTS and isinstance(value, str):
        return int(ipaddress.IPv4Address(value) if kind == IPV4 else ipaddress.IPv6Address(value))
    raise ValueError("of another type")


def show_element(element: object) -> str | None:
    """As nft writes it; None for what is not ours."""
    match element:
        case bool():
            return None
        case int() | str():
            return str(element)
        case {"range": [low, high], **rest} if not rest:
            return f"{low}-{high}"
        case {"elem": {"val": str(value), "comment": str(comment), **rest}, **more} if not rest and not more:
            return f"{value} comment {json.dumps(comment, ensure_ascii=False)}"
        case {"prefix": Mapping() as prefix, **rest} if not rest:
            return f"{prefix.get('addr')}/{prefix.get('len')}"
    return None
