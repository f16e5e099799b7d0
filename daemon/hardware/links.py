"""Network interfaces and their addresses, over rtnetlink. The one file that imports pyroute2, which blocks.

Call `read_links` in a thread: it opens a netlink socket, asks twice and closes it again.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from pyroute2.iproute.linux import IPRoute

from core.errors import DependencyError
from core.hardware import Link
from daemon.hardware.sysfs import read_number

NET_CLASS = Path("/sys/class/net")
if TYPE_CHECKING:
    from pyroute2.iproute.linux import Answer

_UP = 0x1
_KINDS = {1: "ethernet", 32: "infiniband", 772: "loopback"}
"""ARPHRD_* of <linux/if_arp.h>."""


class LinksUnreadable(DependencyError):
    """The kernel did not answer on a netlink socket."""

    code = "links_unreadable"


def read_links(net_class: Path = NET_CLASS) -> tuple[Link, ...]:
    """Raises: LinksUnreadable."""
    try:
        with IPRoute() as route:
            addresses: dict[int, list[str]] = {}
            for entry in route.get_addr():
                # A point-to-point link's IFA_ADDRESS is the other end; its own is IFA_LOCAL. IPv6 has only the first.
                address = entry.get("IFA_LOCAL") or entry.get("IFA_ADDRESS")
                addresses.setdefault(entry["index"], []).append(f"{address}/{entry['prefixlen']}")
            return tuple(_link(link, addresses.get(link["index"], []), net_class) for link in route.get_links())
    except OSError as error:
        raise LinksUnreadable(f"network interfaces cannot be read: {error.strerror or error}") from error


def _link(link: "Answer", addresses: list[str], net_class: Path) -> Link:
    name, up = _text(link.get("IFLA_IFNAME")), bool(link["flags"] & _UP)
    mtu = link.get("IFLA_MTU")
    return Link(
        name=name,
        kind=_text(link.get(("linkinfo", "kind"))) or _KINDS.get(link["ifi_type"], "other"),
        up=up,
        carrier=bool(link.get("IFLA_CARRIER")) if up else None,
        mtu=mtu if isinstance(mtu, int) else None,
        mac=_text(link.get("IFLA_ADDRESS")),
        speed_mbps=_speed(net_class / name / "speed"),
        addresses=addresses,
    )


def _text(value: str | int | None) -> str:
    return "" if value is None else str(value)


def _speed(path: Path) -> int | None:
    """-1 where the link is down or virtual."""
    speed = read_number(path)
    return speed if speed is not None and speed > 0 else None
