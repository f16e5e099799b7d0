"""Addresses and networks as people write them: `10.0.0.7`, `10.0.0.0/24`, `fd00::/64`. Pure.

One reading for the config, for the firewall's state file and for peers, so that what one accepts another does not
refuse. What could never match a packet's source, or would match more than was written, is no network here.
"""

import ipaddress

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_LONGEST = 64
"""Characters; the longest address with a prefix has 43."""


def parse_network(text: str) -> Network:
    """An address is a network of one. Raises: ValueError, with what is wrong and, where it is known, what was meant."""
    if not text or len(text) > _LONGEST or not text.isascii() or not text.isprintable():
        raise ValueError("is no address and no network")
    if "%" in text:
        raise ValueError(f"{text} names an interface; addresses are matched on every interface")
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text} is no address and no network") from None
    address, slash, length = text.partition("/")
    if slash and not length.isdecimal():
        raise ValueError(f"{text}: write the length of the prefix, as in {network}")
    if ipaddress.ip_address(address) != network.network_address:
        raise ValueError(f"{text} has bits set after its prefix; did you mean {network}?")
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise ValueError(f"{text}: write the IPv4 address as such; packets never carry it in this form")
    if network.is_multicast:
        raise ValueError(f"{text} is multicast; nothing is ever sent from there")
    return network
