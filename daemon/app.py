"""Composition root of the daemon: builds every part, hands each what it needs, runs them until a signal.

Stopping the daemon never stops an engine: it closes its socket and goes. The next daemon adopts what runs.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from datetime import UTC, datetime

from core import log as logging
from core.api import ReloadResult
from core.clock import SystemClock
from core.config.cluster import Cluster
from core.config.load import (
    ConfigMissing,
    Loaded,
    config_variables,
    has_made_keys,
    load_config,
    parse_config,
    read_config,
    says_nothing,
)
from core.config.problem import ConfigErrors, Problem
from core.errors import ConflictError
from core.files import StorageError, ensure_directory, lock_file, write_atomic
from core.hardware import DoctorReport
from core.http.client import HttpClient
from core.http.server import HttpService, serve_unix
from core.notify import Notifier
from core.paths import Layout
from core.tasks import supervise
from daemon.activity import Activity
from daemon.admitter import Admitter
from daemon.config_watch import watch_config
from daemon.examination import examine_node
from daemon.firewall import Firewall
from daemon.gateway_socket import apply_address
from daemon.hardware.known import cards_are_known
from daemon.hardware.memory import read_memory
from daemon.hardware.sampler import Sampler
from daemon.hardware.settings import hardware_settings
from daemon.identity import engine_account, gateway_gid, node_name
from daemon.jobs import Jobs
from daemon.key_store import KeyStore
from daemon.local_api.app import create_app
from daemon.local_api.hardware import Looking
from daemon.node import Node
from daemon.owners import read_owners
from daemon.peers import Peers
from daemon.runtimes.estimates import Estimates
from daemon.runtimes.monitor import Monitor, Surveyed
from daemon.runtimes.prepare import Preparer, node_facts
from daemon.tracing import keep_headers
from daemon.usage.ledger import Ledger
from daemon.usage.store import DayStore
from engines.judge import judge_runtimes
from units.registry import load_backend

_SOCKET_MODE = 0o666
"""Anybody may connect; `local_api.access` decides what each caller may ask."""

_DRAIN_S = 2.0
_CARDS_S = 3.0
_CARDS_POLL_S = 0.02
_log = logging.get_logger("daemon")


class DaemonRunning(ConflictError):
    """Another daemon owns this machine's runtimes."""

    code = "daemon_running"


class App:
    """One daemon."""

    def __init__(self, layout: Layout, environ: Mapping[str, str], service_manager: str) -> None:
        self._layout = layout
        self._environ = environ
        self._service_manager = service_manager
        self._notifier = Notifier.from_environment(environ)
        self._keys = KeyStore(layout.client_keys, SystemClock(), logging.get_logger("daemon.keys"))
        self._node: Node | None = None
        self._sampler: Sampler | None = None
        self._firewall: Firewall | None = None

    async def run(self) -> None:
        """Until SIGTERM or SIGINT. Raises: LlmgwError when it cannot begin."""
        ensure_directory(self._layout.runtime, mode=0o755)
        try:
            with lock_file(self._layout.runtime / "daemon.lock"):
                await self._run_locked()
        except ConflictError as error:
            if error.code != "locked":
                raise
            raise DaemonRunning(f"another daemon uses {self._layout.runtime}", hint="llmgw status") from None

    async def _run_locked(self) -> None:
        loaded, complaint = self._first_config()
        logging.set_level(loaded.config.logging.level)
        backend = load_backend(self._service_manager, self._layout)
        self._keys.load()
        async with HttpClient() as http:
            node = self._node = Node(loaded, self._preparer(loaded), backend, http, self._admitter(), self._keys)
            keep_headers(loaded.config.tracing, self._layout, gid=node.preparer.gateway_gid)
            if complaint is not None:
                node.refuse_config(complaint)
            stop = asyncio.Event()
            self._handle_signals(stop)
            async with asyncio.TaskGroup() as group:
                parts = [group.create_task(backend.run())]
                await backend.wait_ready()
                sampler = self._sampler = self._build_sampler(node)
                parts.append(group.create_task(sampler.run()))
                await _wait_cards(sampler, node.admitter)
                adopted = asyncio.Event()
                parts.append(group.create_task(node.run(adopted)))
                await adopted.wait()
                node.in_background(apply_address(loaded.config.server, backend))
                monitor = _build_monitor(node, http)
                parts.append(group.create_task(supervise("monitor", monitor.run, _log)))
                peers = self._build_peers(node)
                firewall = self._firewall = Firewall(node, self._layout, self._service_manager, peers)
                parts.append(group.create_task(supervise("peers", peers.run, _log)))
                parts.append(group.create_task(firewall.run()))
                parts.append(group.create_task(self._feed_watchdog()))
                parts.append(group.create_task(self._watch_config()))
                ledger = self._build_ledger(node)
                parts.append(group.create_task(supervise("usage", ledger.run, _log)))
                looking = _build_looking(node, sampler, firewall, http)
                await self._serve(node, looking, firewall, ledger, stop)
                for part in parts:
                    part.cancel()

    def _build_sampler(self, node: Node) -> Sampler:
        return Sampler(
            hardware_settings(node.config_use.loaded.config, self._layout),
            owners=lambda: read_owners(node),
            clock=SystemClock(),
            log=logging.get_logger("daemon.hardware"),
        )

    async def _serve(
        self, node: Node, looking: Looking, firewall: Firewall, ledger: Ledger, stop: asyncio.Event
    ) -> None:
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        app = create_app(node, Jobs(node.in_background), self._reload, looking, firewall, ledger, started_at)
        service = HttpService(app, on_error=lambda event, error: _log.error(event, error=repr(error)))
        server = await serve_unix(service, self._layout.daemon_socket, mode=_SOCKET_MODE)
        _log.info("daemon_ready", node=node.preparer.node, runtimes=len(node.controllers), pid=os.getpid())
        self._notifier.ready(f"{len(node.controllers)} runtimes")
        await stop.wait()
        self._notifier.stopping()
        _log.info("daemon_stopping")
        server.close()
        await service.drain(_DRAIN_S)
        await ledger.write()

    def _build_peers(self, node: Node) -> Peers:
        def read_cluster() -> tuple[Cluster, str]:
            return node.config_use.loaded.config.cluster, node.preparer.node

        return Peers(read_cluster, self._layout.peer_names, logging.get_logger("daemon.peers"))

    def _build_ledger(self, node: Node) -> Ledger:
        log = logging.get_logger("daemon.usage")
        store = DayStore(self._layout.usage, log)
        return Ledger(store, SystemClock(), lambda: node.config_use.loaded.config.usage.retention_days, log)

    def _first_config(self) -> tuple[Loaded, ConfigErrors | ConfigMissing | None]:
        """The config; where the file cannot be used, the last one that could, beside the reason.

        An operator's typo and a reboot must not take down what served before. Raises: ConfigErrors when there
        is no earlier config either.
        """
        try:
            loaded = self._read_config()
        except ConfigMissing as error:
            _log.warning("config_missing", path=self._layout.config)
            return parse_config(b"", self._layout.config, {}), error
        except ConfigErrors as error:
            if not self._layout.last_good_config.exists():
                raise
            _log.error("config_refused", error=error.message, instead=self._layout.last_good_config)
            variables = config_variables(self._layout, self._environ)
            text, made = read_config(self._layout.last_good_config), has_made_keys(self._layout)
            return parse_config(text, self._layout.config, variables, has_made_keys=made), error
        self._keep(loaded)
        return loaded, None

    def _read_config(self) -> Loaded:
        """The file, judged by the engines too. Raises: ConfigMissing, ConfigErrors."""
        loaded = load_config(self._layout, self._environ)
        problems = judge_runtimes(loaded.config)
        if says_nothing(loaded.text) and not says_nothing(self._text_in_use()):
            problems = [Problem("", "is empty, and what was in use is not", "write {} to want nothing")]
        if problems:
            raise ConfigErrors(str(loaded.path), problems)
        return loaded

    def _text_in_use(self) -> bytes:
        """The config that a new one takes the place of; before there is one, that of an earlier daemon."""
        if self._node is not None:
            return self._node.config_use.loaded.text
        with contextlib.suppress(ConfigMissing, ConfigErrors):
            return read_config(self._layout.last_good_config)
        return b""

    def _keep(self, loaded: Loaded) -> None:
        """Remember a config that can be used. A full disk must not keep a good one from being served."""
        try:
            ensure_directory(self._layout.state, mode=0o755)
            write_atomic(self._layout.last_good_config, loaded.text, mode=0o600)
        except StorageError as error:
            _log.warning("config_not_kept", error=error.message)

    def _admitter(self) -> Admitter:
        def memory() -> tuple[int | None, int | None]:
            read = read_memory()
            return (read.total_mib, read.available_mib) if read is not None else (None, None)

        estimates = Estimates(self._layout.state / "estimates.json")
        return Admitter(SystemClock(), Activity(), estimates, memory)

    def _preparer(self, loaded: Loaded) -> Preparer:
        return Preparer(
            config=loaded.config,
            layout=self._layout,
            facts=node_facts(),
            account=engine_account(loaded.config, required=self._service_manager == "systemd"),
            node=node_name(loaded.config),
            gateway_gid=gateway_gid(),
        )

    def _reload(self, dry: bool = False) -> ReloadResult:
        node = self._node
        if node is None:
            return ReloadResult(changed=False)
        if dry:
            return node.plan_config(self._read_config())
        self._keys.load()
        try:
            loaded = self._read_config()
        except (ConfigErrors, ConfigMissing) as error:
            node.refuse_config(error)
            _log.error("config_refused", error=error.message)
            raise
        # Before the table that names it.
        keep_headers(loaded.config.tracing, self._layout, gid=node.preparer.gateway_gid)
        result = node.use_config(loaded, self._preparer(loaded))
        node.in_background(apply_address(loaded.config.server, node.backend))
        self._keep(loaded)
        if self._sampler is not None:
            self._sampler.use_settings(hardware_settings(loaded.config, self._layout))
        if self._firewall is not None:
            self._firewall.use_config()
        logging.set_level(loaded.config.logging.level)
        _log.info("config_loaded", changed=result.changed, restarted=len(result.restarted), started=len(result.started))
        return result

    def _handle_signals(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload_on_signal)

    def _reload_on_signal(self) -> None:
        self._notifier.reloading()
        self._reload_quietly()
        self._notifier.ready()

    def _reload_quietly(self) -> None:
        """A refusal is told in the log and in `llmgw status`; the old config keeps serving."""
        with contextlib.suppress(ConfigErrors, ConfigMissing):
            self._reload()

    async def _watch_config(self) -> None:
        """Follow the files; where they cannot be watched, `llmgw reload` and SIGHUP still work."""
        folder = self._layout.config.parent
        names = {self._layout.config.name}
        if self._layout.environment.parent == folder:
            names.add(self._layout.environment.name)
        try:
            await watch_config(folder, names, self._reload_on_change)
        except StorageError as error:
            _log.warning("config_not_watched", error=error.message)

    def _reload_on_change(self) -> None:
        node = self._node
        try:
            is_old = node is not None and not node.config_use.error and self._read_config() == node.config_use.loaded
        except (ConfigErrors, ConfigMissing):
            is_old = False
        if not is_old:
            self._reload_quietly()

    async def _feed_watchdog(self) -> None:
        """Tell the service manager that the loop turns."""
        if self._notifier.watchdog_s <= 0:
            return
        while True:
            self._notifier.watchdog()
            await asyncio.sleep(self._notifier.watchdog_s / 3)


def _build_looking(node: Node, sampler: Sampler, firewall: Firewall, http: HttpClient) -> Looking:
    async def examine() -> DoctorReport:
        return await examine_node(node, await sampler.refresh(), firewall.state(), http)

    return Looking(sampler, examine)


async def _wait_cards(sampler: Sampler, admitter: Admitter) -> None:
    """Let admission see the cards, and give them a moment to be found: a hanging nvidia-smi is not waited for."""
    admitter.read_cards = lambda: sampler.state().cards
    admitter.are_cards_known = lambda: cards_are_known(sampler.state())
    admitter.refresh_cards = sampler.refresh_cards
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CARDS_S):
            while not admitter.are_cards_known():  # noqa: ASYNC110 - it is the sum of several readings
                await asyncio.sleep(_CARDS_POLL_S)


def _build_monitor(node: Node, http: HttpClient) -> Monitor:
    return Monitor(
        Surveyed(
            controllers=node.controllers,
            config=lambda: node.config_use.loaded.config,
            this_node=lambda: node.preparer.node,
            activity=node.admitter.activity,
            estimates=node.admitter.estimates,
            backend=node.backend,
            http=http,
            clock=node.admitter.clock,
            log=logging.get_logger("daemon.monitor"),
            restart=node.restart_stuck,
            read_cards=lambda: node.admitter.read_cards(),
        )
    )
