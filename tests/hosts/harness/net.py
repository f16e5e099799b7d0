"""The hosts' network: namespaces with a link each, joined by a bridge that can be cut and healed.

    with Network(("a", "b")) as net, Host("a", net=net), Host("b", net=net):
        net.run("curl", f"http://{net.address_of('a')}:8100/health")
        net.cut("b")

The bridge has a namespace of its own, in which the tests have a seat: no link, route or rule appears in the
namespace of the machine. There is no way out from it to anywhere.
"""

import ipaddress
import json
import subprocess
from collections.abc import Sequence
from types import TracebackType

from tests.hosts.harness.estate import delete_namespace, estate

_COMMAND_LIMIT_S = 60.0
_SUBNET = ipaddress.ip_network("10.77.0.0/24")
_SEAT = _SUBNET[254]


def ip(*argv: str) -> str:
    """Run iproute2 and return what it printed."""
    return subprocess.run(["ip", *argv], check=True, capture_output=True, text=True, timeout=_COMMAND_LIMIT_S).stdout


class Network:
    """A bridge with one port per host. Hosts named here know one another by name; names have up to 12 characters."""

    def __init__(self, names: Sequence[str] = (), *, bridge: str = "br") -> None:
        self._namespace = f"{estate().prefix}-net-{bridge}"
        self._addresses: dict[str, str] = {}
        for name in names:
            self.address_of(name)

    def __enter__(self) -> "Network":
        ip("netns", "add", self._namespace)
        self._ip("link", "add", "br0", "type", "bridge", "forward_delay", "0")
        self._ip("addr", "add", f"{_SEAT}/{_SUBNET.prefixlen}", "dev", "br0")
        self._ip("link", "set", "br0", "up")
        self._ip("link", "set", "lo", "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        delete_namespace(self._namespace)

    @property
    def addresses(self) -> dict[str, str]:
        """Name to address of every host that has been given one so far."""
        return dict(self._addresses)

    def address_of(self, name: str) -> str:
        """The host's address: the next free one when it is asked for first, the same ever after."""
        return self._addresses.setdefault(name, str(_SUBNET[len(self._addresses) + 1]))

    def plug(self, name: str, namespace: str) -> None:
        """Give the host's namespace an `eth0` on the bridge; called by `Host` while it boots."""
        links = json.loads(ip("-j", "-n", namespace, "link", "show"))
        if not any(link["ifname"] == "eth0" for link in links):
            port = self._port(name)
            self._ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            self._ip("link", "set", port, "master", "br0")
            ip("-n", namespace, "addr", "add", f"{self.address_of(name)}/{_SUBNET.prefixlen}", "dev", "eth0")
            ip("-n", namespace, "link", "set", "lo", "up")
            ip("-n", namespace, "link", "set", "eth0", "up")
            ip("-n", namespace, "route", "replace", "default", "via", str(_SEAT))
        self.heal(name)

    def cut(self, name: str) -> None:
        """Unplug the cable: what is sent to the host and from it vanishes, connections hang."""
        self._ip("link", "set", self._port(name), "down")

    def heal(self, name: str) -> None:
        self._ip("link", "set", self._port(name), "up")

    def command(self, argv: Sequence[str]) -> list[str]:
        """`argv`, to be run on the tests' own seat on the bridge."""
        return ["nsenter", f"--net=/run/netns/{self._namespace}", "--", *argv]

    def run(self, *argv: str, check: bool = True, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a command on the tests' own seat on the bridge."""
        return subprocess.run(self.command(argv), check=check, capture_output=True, text=True, timeout=timeout_s)

    def _port(self, name: str) -> str:
        return f"p-{name}"

    def _ip(self, *argv: str) -> None:
        ip("-n", self._namespace, *argv)
