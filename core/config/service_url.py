"""The base URL of somebody else's service, as OpenAI's clients are given it: `https://host[:port]/…/v1`. Pure."""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

_HOST = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)+")
_NEAR = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"),
        *("::1/128", "fc00::/7", "fe80::/10"),
    )
)
"""What an address of this machine, or of its own network, is in; 100.64.0.0/10 is what overlay networks use."""


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """Its parts."""

    tls: bool
    host: str
    """Without the brackets of an IPv6 address."""
    port: int
    path: str
    """Without a slash at its end."""

    @property
    def is_near(self) -> bool:
        """Whether it is this machine or, by its address, in a private network. Of a name nothing is known."""
        if self.host == "localhost":
            return True
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            return False
        return any(address in network for network in _NEAR)


def parse_service_url(text: str) -> ServiceUrl:
    """Raises: ValueError, in words that never repeat a password."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("has characters that no URL has")
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https"):
        raise ValueError("begins with neither https:// nor http://")
    if "@" in parts.netloc:
        raise ValueError("holds credentials; a key belongs into apiKey or apiKeyEnv")
    if parts.query or parts.fragment or text.endswith(("?", "#")):
        raise ValueError("has a query or a fragment; paths are added to it")
    try:
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        raise ValueError("has a port that is none") from None
    if port == 0:
        raise ValueError("has a port that is none")
    if not (_is_address(host) if ":" in host else _HOST.fullmatch(host)):
        raise ValueError("has a host that is none")
    path = parts.path.rstrip("/")
    if not path:
        raise ValueError("has no path: base URLs of OpenAI's API end with one, mostly /v1")
    if not _PATH.fullmatch(path) or ".." in path.split("/"):
        raise ValueError("has a path that is none")
    tls = parts.scheme == "https"
    return ServiceUrl(tls, host, port or (443 if tls else 80), path)


def _is_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6 and "%" not in host
    except ValueError:
        return False
