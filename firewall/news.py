"""News from the kernel that somebody changed an nftables table: a netlink socket on the loop.

It only says that something changed, in any table; who is told looks for himself. Needs CAP_NET_ADMIN.
"""

import asyncio
import socket
from collections.abc import Callable

from firewall.kernel import FirewallNotPermitted, FirewallUnavailable

# From linux/netlink.h and linux/netfilter/nfnetlink.h; Python's socket module has no names for them.
_NETLINK_NETFILTER = 12
_SOL_NETLINK = 270
_ADD_MEMBERSHIP = 1
_GROUP_NFTABLES = 7
_ENOUGH_BYTES = 1 << 16


async def watch(changed: Callable[[], None]) -> None:
    """Call `changed` after every change, until cancelled. Raises: FirewallNotPermitted, FirewallUnavailable."""
    try:
        listener = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _NETLINK_NETFILTER)
    except OSError as error:
        raise FirewallUnavailable(f"changes of nftables cannot be followed: {error.strerror}") from error
    with listener:
        try:
            listener.bind((0, 0))
            listener.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, _GROUP_NFTABLES)
        except PermissionError as error:
            raise FirewallNotPermitted("changes of nftables may not be followed by this process") from error
        except OSError as error:
            raise FirewallUnavailable(f"changes of nftables cannot be followed: {error.strerror}") from error

        def drain() -> None:
            try:
                while listener.recv(_ENOUGH_BYTES):
                    pass
            except OSError:
                pass  # nothing more waits, or so much came that some was lost: in either case something changed
            changed()

        loop = asyncio.get_running_loop()
        loop.add_reader(listener.fileno(), drain)
        try:
            changed()  # what came before we listened
            await asyncio.Event().wait()
        finally:
            loop.remove_reader(listener.fileno())
