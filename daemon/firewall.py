"""The daemon's firewall: runs the guard with what the node wants now, logs what it does, and tells how it stands.

Only the daemon that systemd runs keeps the machine's table. One that `llmgw up` started is one of possibly many on a
machine, and leaves it alone, root or not: it writes its wish to a file, for root to install (`llmgw firewall sync`).
"""

from core.clock import SystemClock
from core.errors import LlmgwError
from core.files import StorageError
from core.firewall import FirewallState
from core.log import get_logger
from core.paths import Layout
from core.tasks import supervise
from daemon.node import Node
from daemon.peers import Peers
from firewall.guard import Guard, News, Protection
from firewall.kernel import FirewallUnavailable, Kernel, NoKernel, load_kernel
from firewall.normalize import normalize
from firewall.policy import EVERYBODY, Policy, build_policy, show_range
from firewall.state_file import write_wish
from firewall.text import render

_log = get_logger("daemon.firewall")


class Firewall:
    """One node's firewall."""

    def __init__(self, node: Node, layout: Layout, service_manager: str, peers: Peers) -> None:
        self._node = node
        self._layout = layout
        self._peers = peers
        peers.changed = self.poke
        self._guard = Guard(_kernel(service_manager, layout), self._wanted, tell=self._told, clock=SystemClock())

    async def run(self) -> None:
        """Until cancelled; the table stays."""
        await supervise("firewall", self._guard.run, _log)

    def use_config(self) -> None:
        """The node serves by another config."""
        self._peers.use_config()
        self.poke()

    def poke(self) -> None:
        """Something else is wanted."""
        self._guard.poke()
        if self._guard.standing.reason is not None:
            self._leave_wish()

    def state(self, *, with_table: bool = False) -> FirewallState:
        """What is known now."""
        standing, policy = self._guard.standing, self._policy()
        error = standing.reason
        return FirewallState(
            enabled=self._enabled,
            state=standing.protection.value,
            code=error.code if error else "",
            reason=error.message if error else "",
            hint=error.hint if error else "",
            since=standing.since,
            private_ports=[show_range(ports) for ports in policy.private_ports],
            networks=[str(network) for network in policy.networks],
            peers=self._peers.states(),
            gateway_port=policy.gateway_port,
            clients=[] if policy.clients == EVERYBODY else [str(network) for network in policy.clients],
            mended=standing.mended,
            drift=list(standing.drift),
            drift_at=standing.drift_at,
            table=self._table() if with_table else None,
        )

    def _table(self) -> str | None:
        present = self._guard.present
        return None if present is None else render(normalize(present, keep_counted=True))

    async def look(self) -> FirewallState:
        """Look at the table now, mend it if need be, and tell."""
        await self._guard.check()
        return self.state(with_table=True)

    @property
    def _enabled(self) -> bool:
        return self._node.config_use.loaded.config.firewall.enabled

    def _wanted(self) -> Policy | None:
        return self._policy() if self._enabled else None

    def _policy(self) -> Policy:
        """A running engine keeps the port that it has, whatever a newer config says."""
        records = (controller.record for controller in self._node.controllers.values())
        ports = [port for record in records if record is not None for port in record.ports]
        return build_policy(self._node.config_use.loaded.config, engine_ports=ports, peers=self._peers.addresses())

    def _told(self, news: News) -> None:
        standing, plan = news.standing, news.plan
        if standing.reason is not None:
            error = standing.reason
            event = "firewall_off" if standing.protection is Protection.OFF else "firewall_unguarded"
            _log.warning(event, code=error.code, error=error.message, hint=error.hint)
            self._leave_wish()
        elif news.is_repair:
            _log.warning("firewall_mended", times=standing.mended, step=plan.step, drift=" | ".join(standing.drift[:8]))
        else:
            _log.info(f"firewall_{standing.protection.value}", step=plan.step, changed_lines=len(plan.difference))

    def _leave_wish(self) -> None:
        try:
            write_wish(self._layout.firewall_wish, self._policy(), enabled=self._enabled)
        except (StorageError, OSError) as error:
            _log.warning("firewall_wish_not_written", error=str(error))


def _kernel(service_manager: str, layout: Layout) -> Kernel:
    if service_manager == "systemd":
        return load_kernel()
    return NoKernel(_left_alone(layout))


def _left_alone(layout: Layout) -> LlmgwError:
    return FirewallUnavailable(
        "llmgw up leaves the machine's firewall alone",
        hint=f"sudo llmgw --state {layout.state.parent} firewall sync installs what this node wants",
        code="firewall_left_alone",
    )
