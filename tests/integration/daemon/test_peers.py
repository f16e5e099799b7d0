"""The names of other nodes: looked up beside one another, kept when they fail, over restarts, and forgotten in the end.

The resolver is a function here: what the machine's own says cannot be directed without being root. Booted hosts have
the real one (`tests/hosts/test_firewall.py`), and so has the daemon at the end.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from core.config.cluster import Cluster, ClusterNode
from core.firewall import FirewallState
from core.log import get_logger
from core.peers import read_resolved
from daemon.peers import Peers, PeerUnresolved, look_up
from tests.integration.daemon.stack import Stack, running

CLUSTER = Cluster(
    nodes={
        "a": ClusterNode(),
        "mac": ClusterNode(endpoint="http://mac.lan:8100"),
        "old": ClusterNode(endpoint="http://old.lan:8100"),
        "b": ClusterNode(endpoint="http://10.0.0.2:8100"),
    }
)
PATIENCE_S = 30.0


class Names:
    """A resolver: what it knows, and what it never answers."""

    def __init__(self, **known: list[str]) -> None:
        self.known = {f"{name}.lan": addresses for name, addresses in known.items()}
        self.asked: list[str] = []
        self.hangs = ""
        self.go_on = threading.Event()

    def __call__(self, name: str) -> list[str]:
        self.asked.append(name)
        if name == self.hangs:
            self.go_on.wait(PATIENCE_S)
        if name not in self.known:
            raise PeerUnresolved(f"{name} does not resolve: nobody knows it")
        return self.known[name]


def peers(path: Path, names: Names, cluster: Cluster = CLUSTER) -> Peers:
    return Peers(lambda: (cluster, "a"), path / "peers.json", get_logger("test"), lookup=names)


async def test_one_that_does_not_resolve_is_named_and_the_others_are_let_through(tmp_path: Path) -> None:
    known = peers(tmp_path, Names(mac=["10.0.0.9"]))
    assert known.addresses() == {"10.0.0.2": "b"}
    await known.resolve()
    assert known.addresses() == {"10.0.0.9": "mac", "10.0.0.2": "b"}
    assert {state.host: (state.nodes, state.problem) for state in known.states()} == {
        "mac.lan": (["mac"], ""),
        "old.lan": (["old"], "old.lan does not resolve: nobody knows it"),
        "10.0.0.2": (["b"], ""),
    }


async def test_what_a_name_meant_last_holds_until_it_means_something_else_also_over_a_restart(tmp_path: Path) -> None:
    names = Names(mac=["10.0.0.9"], old=["10.0.0.8", "fd00::8"])
    await peers(tmp_path, names).resolve()
    names.known = {}
    again = peers(tmp_path, names)
    before = again.addresses()
    assert before == {"10.0.0.9": "mac", "10.0.0.8": "old", "fd00::8": "old", "10.0.0.2": "b"}
    await again.resolve()
    assert again.addresses() == before
    assert [state.problem != "" for state in again.states()] == [True, True, False]
    names.known = {"mac.lan": ["10.0.0.7"], "old.lan": ["10.0.0.8"]}
    await again.resolve()
    assert again.addresses() == {"10.0.0.7": "mac", "10.0.0.8": "old", "10.0.0.2": "b"}
    assert not any(state.problem for state in again.states())


async def test_a_name_that_left_the_config_is_forgotten(tmp_path: Path) -> None:
    names = Names(mac=["10.0.0.9"], old=["10.0.0.8"])
    await peers(tmp_path, names).resolve()
    fewer = Cluster(nodes={name: node for name, node in CLUSTER.nodes.items() if name != "old"})
    await peers(tmp_path, names, fewer).resolve()
    assert list(read_resolved(tmp_path / "peers.json")) == ["mac.lan"]


async def test_a_lookup_that_never_ends_holds_up_no_other_and_is_not_begun_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.peers._ANSWER_S", 0.2)
    names = Names(mac=["10.0.0.9"], old=["10.0.0.8"])
    names.hangs = "old.lan"
    known = peers(tmp_path, names)
    async with asyncio.timeout(PATIENCE_S):
        await known.resolve()
        while "10.0.0.9" not in known.addresses():  # on a busy machine this one, too, takes longer than it may
            await known.resolve()
    assert known.addresses() == {"10.0.0.9": "mac", "10.0.0.2": "b"}
    assert "old.lan does not resolve: no answer in" in [state.problem for state in known.states()][1]
    assert names.asked.count("old.lan") == 1
    names.go_on.set()
    async with asyncio.timeout(PATIENCE_S):
        while "10.0.0.8" not in known.addresses():
            await known.resolve()
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def followed(known: Peers) -> AsyncIterator[Callable[[Callable[[], bool]], object]]:
    """Run it; a wait for something to hold, that looks again after every change."""
    changes = asyncio.Event()
    known.changed = changes.set

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                changes.clear()
                await changes.wait()

    task = asyncio.create_task(known.run())
    try:
        yield until
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_names_are_looked_up_again_when_the_config_is(tmp_path: Path) -> None:
    names = Names(mac=["10.0.0.9"], old=["10.0.0.8"])
    known = peers(tmp_path, names)
    async with followed(known) as until:
        await until(lambda: "10.0.0.8" in known.addresses())  # type: ignore[misc]
        names.known["mac.lan"] = ["10.0.0.7"]
        known.use_config()
        await until(lambda: "10.0.0.7" in known.addresses())  # type: ignore[misc]


def test_a_name_of_this_machine_itself_is_no_peer() -> None:
    with pytest.raises(PeerUnresolved, match="localhost resolves to no address of another machine"):
        look_up("localhost")


@pytest.mark.parametrize("name", ["x" * 64 + ".invalid", "a..b"])
def test_what_is_no_name_is_an_error_like_any_other(name: str) -> None:
    with pytest.raises(PeerUnresolved, match="does not resolve"):
        look_up(name)


def section(*others: str) -> str:
    nodes = {"here": {}, **{f"n{i}": {"endpoint": f"http://{host}:8100"} for i, host in enumerate(others)}}
    return f"cluster: {json.dumps({'nodeId': 'here', 'nodes': nodes})}\n"


async def read_state(stack: Stack) -> FirewallState:
    return await stack.client.firewall()


async def test_a_daemon_wishes_for_its_peers_and_follows_its_config(tmp_path: Path) -> None:
    """The wish of a node that may not touch the firewall, which the daemon writes as it learns."""
    kept = {"names": {"no-such-node.invalid": {"addresses": ["10.0.0.9"], "at": "2026-01-01T00:00:00+00:00"}}}
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/peers.json").write_text(json.dumps(kept))
    wish = tmp_path / "lib/firewall.json"

    def wished() -> dict[str, str]:
        found = json.loads(wish.read_text()) if wish.exists() else {}
        return {peer["address"]: peer["nodes"] for peer in found.get("peers", [])}

    async with running(tmp_path, section("10.0.0.2", "no-such-node.invalid")) as stack:
        await stack.until(lambda _: wished() == {"10.0.0.2": "n0", "10.0.0.9": "n1"})
        await stack.until(lambda s: bool(s.firewall and s.firewall.peers[1].problem))
        assert [peer.addresses for peer in (await read_state(stack)).peers] == [["10.0.0.2"], ["10.0.0.9"]]
        stack.write_config(section("10.0.0.3"))
        await stack.client.reload()
        await stack.until(lambda _: wished() == {"10.0.0.3": "n0"})
        await stack.until(lambda _: json.loads((tmp_path / "lib/peers.json").read_text())["names"] == {})
