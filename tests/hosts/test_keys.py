"""Keys on a machine that others reach: made on it, used from elsewhere, kept over restarts, revoked."""

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.hosts.harness import Network
from tests.hosts.node import PROGRAMS, Node
from tests.hosts.package import installed_host, wait_active
from tests.rewriting import rewrite

_CONFIG = """server: {host: 0.0.0.0, port: 8100}
security: {allowNonLoopbackBind: true}
models: [{id: demo, runtime: demo}, {id: other, runtime: demo}]
runtimes: {demo: {engine: sim, keepWarm: true}}
"""
_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
_KEPT = "/var/lib/llmgw/client-keys.json"


@dataclass(frozen=True)
class Reached:
    """A node that listens for others, and one of those."""

    node: Node
    net: Network

    def ask(self, key: str, model: str = "demo") -> tuple[int, str]:
        """Status and body of a chat, asked from another machine."""
        url = f"http://{self.net.address_of(self.node.host.name)}:8100/v1/chat/completions"
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2})
        words = ["curl", "-sS", "--max-time", "20", "-w", "\n%{http_code}", "-H", "content-type: application/json"]
        # On another machine's command line, as clients do with curl; not on the node's.
        done = self.net.run(*words, "-H", f"authorization: Bearer {key}", "-d", body, url)
        answer, _, status = done.stdout.rpartition("\n")
        return int(status), answer

    def until(self, key: str, status: int) -> None:
        """Wait, as a client that tries again, until the key is answered so."""
        for _ in range(100):
            if (found := self.ask(key)[0]) == status:
                return
        raise AssertionError(f"still {found}, not {status}: {self.node.host.journal('-u', 'llmgw-*')[-3000:]}")


@contextmanager
def reached() -> Iterator[Reached]:
    """The first key is made before the config lets others in: it needs one."""
    with Network(("keys",)) as net, installed_host("keys", net=net) as host:
        wait_active(host, "llmgw.target", *PROGRAMS)
        node = Node(host)
        node.llmgw("key", "create", "first", "--scope", "admin")
        rewrite(host.path("/etc/llmgw/config.yaml"), _CONFIG)
        node.llmgw("config", "check")
        node.llmgw("reload")
        node.llmgw("runtime-start", "demo")
        yield Reached(node, net)


def test_a_key_made_here_opens_the_node_from_elsewhere_until_it_is_revoked() -> None:
    with reached() as there:
        node = there.node
        made = node.llmgw(
            "key", "create", "team-a", "--model", "dem*", "--requests-per-minute", "30", "--expires", "1d"
        )
        key = made.stdout.strip()
        there.until(key, 200)
        assert [there.ask(key, "other")[0], there.ask(key, "nope")[0], there.ask("")[0], there.ask(key + "x")[0]] == [
            403, 403, 401, 401,
        ]  # fmt: skip

        path = node.host.path(_KEPT)
        assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_uid) == (0o600, 0)
        assert node.host.run(*_NOBODY, "cat", _KEPT, check=False).code != 0
        refused = node.host.run(*_NOBODY, "llmgw", "key", "list", "--json", check=False)
        assert (refused.code, json.loads(refused.stdout)["error"]["code"]) == (6, "caller_refused")

        node.host.run("systemctl", "restart", "llmgw-daemon.service")
        wait_active(node.host, *PROGRAMS)
        assert there.ask(key)[0] == 200
        node.host.run("systemctl", "restart", "llmgw-gateway.service")
        wait_active(node.host, *PROGRAMS)
        there.until(key, 200)

        statuses = [there.ask(key)[0] for _ in range(40)]
        assert statuses[-1] == 429 and 25 <= statuses.count(200) <= 30

        node.llmgw("key", "revoke", "team-a", "--apply")
        there.until(key, 401)
        assert there.ask(key)[1] == there.ask("sk-llmgw-never")[1]
        listed = json.loads(node.llmgw("key", "list", "--json").stdout)["keys"]
        assert [each["name"] for each in listed] == ["first"]
        told = node.host.run("sh", "-c", "journalctl --no-pager; cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
        assert "key=team-a" in told and key not in told
