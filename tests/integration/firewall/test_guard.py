"""The guard with the real kernel: it installs, follows, mends, leaves others alone, and counts on."""

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Callable

import pytest

from core.clock import SystemClock
from core.networks import parse_network
from firewall.apply import NftKernel
from firewall.guard import Guard, News, Protection, Standing
from firewall.kernel import FirewallRefused
from firewall.normalize import read_counts
from firewall.plan import Step, make_plan
from firewall.policy import Policy, make_policy
from firewall.ruleset import Command, build_table
from firewall.text import render_script
from tests.integration.firewall.own_network import in_own_network, needs_root, nft, talk_to_oneself

pytestmark = needs_root

_PATIENCE_S = 30.0


def policy(
    *networks: str,
    clients: tuple[str, ...] = (),
    ports: tuple[tuple[int, int], ...] = ((8201, 8299),),
    peers: dict[str, str] | None = None,
) -> Policy:
    return make_policy(
        private_ports=ports,
        networks=[parse_network(text) for text in networks],
        peers=[(ipaddress.ip_address(text), nodes) for text, nodes in (peers or {}).items()],
        gateway_port=8100,
        clients=[parse_network(text) for text in clients],
    )


POLICIES = {
    "nothing allowed": policy(),
    "one address": policy("10.0.0.7"),
    "both families": policy("10.0.0.0/24", "10.0.1.0/25", "fd00::/64", "2001:db8::7"),
    "adjacent": policy("10.0.0.0/24", "10.0.1.0/25", "10.0.1.128/26"),
    "clients named": policy("10.0.0.7", clients=("10.9.0.0/16", "fd09::/48")),
    "everybody": policy("0.0.0.0/0", "::/0"),
    "halves": policy("0.0.0.0/1", "128.0.0.0/2", "::/1"),
    "ends": policy(
        "255.255.255.255", "ffff:ffff::/127".replace("ffff:ffff", "fdff:ffff"), ports=((1, 1), (65535, 65535))
    ),
    "peers": policy("10.0.0.0/24", peers={"10.0.0.9": "b", "10.9.0.10": "spark-3, mac", "fd00::3": "c"}),
    "peers with other names": policy(peers={"10.0.0.9": "z", "10.9.0.10": "b", "fd00::3": "c" * 100}),
    "many peers": policy(peers={f"10.{i // 250}.{i % 250}.1": f"node-{i}" for i in range(1000)}),
    "many ports": policy(ports=tuple((port, port) for port in range(1025, 3000, 2))),
    "many networks": policy(*(f"10.{i // 250}.{i % 250}.0/25" for i in range(1000))),
}


class Watched:
    """A guard, and a way to wait for what it becomes."""

    def __init__(self, wish: Policy | None) -> None:
        self.wish = wish
        self.heard: list[News] = []
        self._news = asyncio.Event()
        self.guard = Guard(NftKernel(), lambda: self.wish, tell=self._tell, clock=SystemClock())

    def _tell(self, news: News) -> None:
        self.heard.append(news)
        self._news.set()

    async def until(self, holds: Callable[[Standing], bool]) -> Standing:
        async with asyncio.timeout(_PATIENCE_S):
            while not holds(self.guard.standing):
                await self._news.wait()
                self._news.clear()
        return self.guard.standing

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Watched"]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.guard.run())
            await self.until(lambda standing: bool(standing.since))
            yield self
            task.cancel()


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_installed_is_read_back_as_it_was_built(name: str) -> None:
    async def body() -> None:
        watched = Watched(POLICIES[name])
        assert (await watched.guard.check()).protection is Protection.GUARDED, watched.guard.standing
        assert make_plan(POLICIES[name], watched.guard.present).step is Step.NOTHING
        assert [news.plan.step for news in watched.heard] == [Step.INSTALL]

    in_own_network(body)


@pytest.mark.parametrize("name", POLICIES)
def test_the_text_of_a_dry_run_installs_the_same_table(name: str) -> None:
    async def body() -> None:
        script = render_script(build_table(POLICIES[name]))
        nft("-f", "-", script=script)
        assert make_plan(POLICIES[name], await NftKernel().read()).step is Step.NOTHING

    in_own_network(body)


def test_every_policy_follows_every_other_and_the_rules_count_on() -> None:
    async def body() -> None:
        watched = Watched(policy())
        await watched.guard.check()
        nft("add", "table", "inet", "other")
        few = [wish for name, wish in POLICIES.items() if not name.startswith("many")]
        for before in few:
            for after in few:
                watched.wish = before
                await watched.guard.check()
                watched.wish = after
                assert (await watched.guard.check()).protection is Protection.GUARDED, watched.guard.standing
        steps = {news.plan.step for news in watched.heard}
        assert steps == {Step.INSTALL, Step.ELEMENTS}
        assert watched.guard.standing.mended == 0

    in_own_network(body)


TAMPERINGS = {
    "all is flushed": "flush ruleset",
    "the table is deleted": "delete table inet llmgw",
    "a rule lets everybody in": "insert rule inet llmgw private accept",
    "a rule counts nothing": "add rule inet llmgw input tcp dport 22 drop",
    "a chain is emptied": "flush chain inet llmgw private",
    "an address is added": "add element inet llmgw networks4 { 192.0.2.1 }",
    "a port is taken out": "delete element inet llmgw private_ports { 8201-8299 }",
    "a set is added": "add set inet llmgw more { type ipv4_addr; }",
    "a map is added": "add map inet llmgw more { type ipv4_addr : verdict; }",
    "a counter is added": "add counter inet llmgw more",
    "a hooked chain is added": "add chain inet llmgw more { type filter hook output priority 0; policy drop; }",
    "the policy is changed": "add chain inet llmgw input { policy drop; }",
    "the table sleeps": "add table inet llmgw { flags dormant; }",
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_what_others_do_to_the_table_is_mended_at_once_and_told(name: str) -> None:
    async def body() -> None:
        async with Watched(policy("10.0.0.7")).running() as watched:
            nft(TAMPERINGS[name])
            standing = await watched.until(lambda now: now.mended == 1)
            assert standing.protection is Protection.GUARDED
            assert standing.drift and standing.drift_at
            assert make_plan(watched.wish, await NftKernel().read()).step is Step.NOTHING

    in_own_network(body)


def test_rules_of_others_stay_as_they_are_whatever_we_do() -> None:
    theirs = """
        table inet filter {
            chain input { type filter hook input priority 0; policy accept
                tcp dport 22 accept
            }
        }
        table ip nat {
            chain pre { type nat hook prerouting priority -100
                tcp dport 80 redirect to :8080
            }
        }
        table inet llmgw2 {
            set private_ports { type inet_service
                elements = { 8201 }
            }
        }
    """

    async def body() -> None:
        nft("-f", "-", script=theirs)
        before = nft("list", "ruleset")
        watched = Watched(policy("10.0.0.7"))
        for wish in (watched.wish, policy("10.0.0.8"), None, policy(), None):
            watched.wish = wish
            await watched.guard.check()
            if wish is not None:
                nft("insert rule inet llmgw private accept")
                await watched.guard.check()
            tables = nft("list", "tables").split("\n")
            assert ("table inet llmgw" in tables) == (wish is not None)
        assert nft("list", "ruleset") == before

    in_own_network(body)


def test_counters_survive_a_new_policy_a_repair_and_a_flush() -> None:
    async def body() -> None:
        watched = Watched(policy("10.0.0.7"))
        await watched.guard.check()
        talk_to_oneself()
        await watched.guard.check()
        counted = read_counts(watched.guard.present or ())["llmgw: this machine itself"]
        assert counted[0] >= 2
        watched.wish = policy("10.0.0.8", clients=("10.0.0.0/8",))
        await watched.guard.check()
        for tampering in TAMPERINGS.values():
            nft(tampering)
            await watched.guard.check()
            assert read_counts(watched.guard.present or ())["llmgw: this machine itself"] >= counted, tampering

    in_own_network(body)


def test_a_refused_rule_leaves_everything_as_it_was() -> None:
    async def body() -> None:
        kernel = NftKernel()
        await kernel.apply(make_plan(policy("10.0.0.7"), None).commands)
        before = nft("-a", "list", "ruleset")
        bad: Command = {
            "add": {"rule": {"family": "inet", "table": "llmgw", "chain": "nowhere", "expr": [{"drop": None}]}}
        }
        batches: tuple[list[Command], ...] = (
            [*make_plan(policy("10.0.0.8"), None).commands, bad],
            [bad, *make_plan(policy("10.0.0.8"), None).commands],
            [{"add": {"nonsense": {}}}],
        )
        for commands in batches:
            with pytest.raises(FirewallRefused):
                await kernel.apply(commands)
            assert nft("-a", "list", "ruleset") == before

    in_own_network(body)


def test_somebody_who_undoes_every_repair_is_met_with_pauses_and_the_last_word_is_ours() -> None:
    async def body() -> None:
        async with Watched(policy("10.0.0.7")).running() as watched:
            for round_ in range(1, 5):
                nft("delete table inet llmgw")
                await watched.until(lambda now, wanted=round_: now.mended >= wanted)  # type: ignore[misc]
            assert watched.guard.standing.protection is Protection.GUARDED
            assert "table inet llmgw" in nft("list", "tables")

    in_own_network(body)


def test_a_guard_that_goes_leaves_the_table_and_the_next_one_finds_nothing_to_do() -> None:
    async def body() -> None:
        async with Watched(policy("10.0.0.7")).running():
            pass
        before = nft("-a", "list", "ruleset")
        assert "llmgw" in before
        async with Watched(policy("10.0.0.7")).running() as second:
            assert [news.plan.step for news in second.heard] == [Step.NOTHING]
        assert nft("-a", "list", "ruleset") == before

    in_own_network(body)


def test_what_others_do_to_their_own_tables_all_day_takes_little_of_our_time_and_ours_is_still_guarded() -> None:
    async def body() -> None:
        async with Watched(policy("10.0.0.7")).running() as watched:
            nft("-f", "-", script="table inet ban {\nset s { type ipv4_addr\n}\n}\n")
            for number in range(100):
                nft("add", "element", "inet", "ban", "s", f"{{ 10.0.0.{number} }}")
            assert watched.guard.standing.mended == 0
            nft("delete", "table", "inet", "llmgw")
            await watched.until(lambda now: now.mended == 1)
            assert "10.0.0.99" in nft("list", "set", "inet", "ban", "s")

    in_own_network(body)
