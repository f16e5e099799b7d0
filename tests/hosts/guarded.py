"""A node and a peer on a bridge, with a stranger (the tests' own seat), IPv4 and IPv6; and who reaches what.

Engines listen on loopback alone, so what stands for one here listens everywhere: only the firewall is in the way.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from core.firewall import FirewallState
from tests.hosts.harness import Host, Network
from tests.hosts.package import installed_host, wait_active
from tests.rewriting import rewrite

ENGINE, GATEWAY, OTHER = 8205, 8100, 9999
V6 = {"node": "fd77::1", "peer": "fd77::2", "seat": "fd77::fe"}
PEOPLE = ("self", "peer", "stranger")
PROGRAMS = ("llmgw.target", "llmgw-daemon.service", "llmgw-gateway.service")
_PATIENCE_S = 60.0
_SERVER = """
import http.server, socket, sys
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
Server((sys.argv[1], int(sys.argv[2])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@dataclass(slots=True)
class Guarded:
    """The node, and everybody who asks for it."""

    net: Network
    node: Host
    peer: Host
    addresses: dict[str, str] = field(default_factory=dict)

    def listen(self, port: int) -> None:
        """Somebody serves on all addresses of the node (on the gateway's port: on all but loopback)."""
        hosts = (f"::ffff:{self.address(4)}", self.address(6)) if port == GATEWAY else ("::",)
        for number, host in enumerate(hosts):
            name = f"--unit=listener-{port}-{number}"
            self.node.run("systemd-run", "--quiet", name, "/usr/bin/python3", "-c", _SERVER, host, str(port))
        self.until(lambda: all(self.reaches("self", port, version) for version in (4, 6)))

    def address(self, version: int, who: str = "node") -> str:
        return self.net.address_of(who) if version == 4 else V6[who]

    def reaches(self, who: str, port: int, version: int) -> bool:
        """Whether a connection from there comes to be."""
        address = self.address(version)
        url = f"http://[{address}]:{port}/" if version == 6 else f"http://{address}:{port}/"
        line = ("curl", "--silent", "--output", "/dev/null", "--max-time", "1", "--globoff", url)
        if who == "stranger":
            return self.net.run(*line, check=False).returncode == 0
        return (self.node if who == "self" else self.peer).run(*line, check=False).code == 0

    def who_reaches(self, port: int) -> set[tuple[str, int]]:
        return {(who, version) for who in PEOPLE for version in (4, 6) if self.reaches(who, port, version)}

    def configure(self, text: str) -> None:
        """Write the config and have it read."""
        rewrite(self.node.path("/etc/llmgw/config.yaml"), text)
        self.node.run("llmgw", "reload")
        self.state()

    def state(self) -> FirewallState:
        """After the daemon has looked."""
        return msgspec.json.decode(self.node.run("llmgw", "firewall", "status", "--json").stdout, type=FirewallState)

    def ruleset(self) -> str:
        return self.node.run("nft", "list", "ruleset").stdout

    def others(self) -> str:
        """Every table but ours, exactly: with handles and counts."""
        lines = self.node.run("nft", "--handle", "list", "tables").stdout.splitlines()
        names = [line.split()[1:3] for line in lines]
        tables = [name for name in names if name != ["inet", "llmgw"]]
        return "".join(self.node.run("nft", "--handle", "list", "table", *name).stdout for name in tables)

    def until(self, holds: Callable[[], bool]) -> float:
        """Ask until it holds; how many seconds that took."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > _PATIENCE_S:
                raise AssertionError(self.ruleset() + self.node.journal("-u", "llmgw-daemon", "-n", "40"))
        return time.monotonic() - began

    def doctor(self) -> list[dict[str, str]]:
        """What the doctor has to say of the firewall."""
        report = json.loads(self.node.run("llmgw", "doctor", "--json", check=False).stdout)
        return [finding for finding in report["findings"] if finding["check"] == "firewall"]


@contextlib.contextmanager
def guarded() -> Iterator[Guarded]:
    """Node, peer and stranger, with something that listens on an engine's port and on one of nobody's."""
    names = ("node", "peer")
    with Network(names, bridge="fw") as net, installed_host("node", net=net) as node, Host("peer", net=net) as peer:
        for name, host in (("node", node), ("peer", peer)):
            host.run("ip", "-6", "addr", "add", f"{V6[name]}/64", "dev", "eth0", "nodad")
        net.run("ip", "-6", "addr", "add", f"{V6['seat']}/64", "dev", "br0", "nodad")
        wait_active(node, *PROGRAMS)
        lab = Guarded(net, node, peer)
        lab.listen(ENGINE)
        lab.listen(OTHER)
        yield lab
