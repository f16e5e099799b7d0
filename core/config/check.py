"""References and rules between sections, which no single type can hold. Pure."""

import ipaddress
import re
from collections.abc import Iterable

from core.config.cluster_check import check_cluster
from core.config.model_check import check_backends, check_models
from core.config.names import no_such
from core.config.problem import Problem
from core.config.schema import Config
from core.config.tracing_check import check_tracing
from core.networks import parse_network

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_RUNTIME_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,127}")


def check(config: Config, *, has_made_keys: bool = False, host_name: str = "") -> list[Problem]:
    """Everything wrong with a config whose sections are each fine.

    `has_made_keys`: clients' keys are also kept outside of it (`llmgw key create`). `host_name`: this machine's.
    """
    return [
        *_check_server(config, has_made_keys),
        *_check_meeting(config),
        *check_cluster(config.cluster, host_name),
        *_check_placement(config),
        *check_models(config),
        *check_backends(config),
        *_check_aliases(config),
        *_check_runtimes(config),
        *_check_ports(config),
        *_check_fabrics(config),
        *_check_firewall(config),
        *check_tracing(config),
    ]


def is_loopback(host: str) -> bool:
    """Whether a bind address is reachable from this machine only. Names other than `localhost` are not."""
    bare = host.removeprefix("[").partition("%")[0].removesuffix("]")
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Whether something can be bound to it without a name service: an address or `localhost`."""
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]").partition("%")[0])
    except ValueError:
        return host == "localhost"
    return True


def _check_placement(config: Config) -> Iterable[Problem]:
    """Without a list of nodes nobody can say which of them there are."""
    nodes = config.cluster.nodes
    for index, model in enumerate(config.models):
        for place, target in enumerate(model.targets):
            if nodes and target.node and target.node not in nodes:
                yield Problem(f"models[{index}].targets[{place}].node", no_such("node", target.node, nodes))


def _check_meeting(config: Config) -> Iterable[Problem]:
    tls = config.server.tls
    if bool(tls.cert_file) != bool(tls.key_file):
        missing = "keyFile" if tls.cert_file else "certFile"
        yield Problem(f"server.tls.{missing}", "is missing: a certificate and its key belong together")
    for name, path in (("certFile", tls.cert_file), ("keyFile", tls.key_file)):
        if path and not path.startswith("/"):
            yield Problem(f"server.tls.{name}", f"{path} is no absolute path")
    for index, word in enumerate(config.server.trusted_proxies):
        try:
            if word != "unix":
                parse_network(word)
        except ValueError as error:
            yield Problem(f"server.trustedProxies[{index}]", str(error))
    for index, origin in enumerate(config.server.cors_origins):
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            hint = "scheme, host and port alone, as in https://app.example.org"
            yield Problem(f"server.corsOrigins[{index}]", f"{origin!r} is no origin", hint=hint)


def _check_server(config: Config, has_made_keys: bool) -> Iterable[Problem]:
    if not is_address(config.server.host):
        yield Problem(
            "server.host", f"{config.server.host!r} is no address", hint="an IPv4 or IPv6 address, or localhost"
        )
        return
    if is_loopback(config.server.host):
        return
    if not config.security.allow_non_loopback_bind:
        yield Problem(
            "server.host",
            f"{config.server.host} is reachable from other machines",
            hint="set security.allowNonLoopbackBind: true, and keys",
        )
    elif not has_made_keys and not any((*config.security.api_keys, *config.security.admin_api_keys)):
        hint = "llmgw key create, or add a key"
        yield Problem("security.apiKeys", f"is empty, and server.host is {config.server.host}", hint=hint)


def _check_aliases(config: Config) -> Iterable[Problem]:
    ids = [model.id for model in config.models]
    for alias, target in config.aliases.items():
        if alias in ids:
            yield Problem(f"aliases.{alias}", "is also the id of a model")
        if target not in ids:
            yield Problem(f"aliases.{alias}", no_such("model", target, ids))


def _check_runtimes(config: Config) -> Iterable[Problem]:
    ports: dict[int, str] = {}
    for name, runtime in config.runtimes.items():
        path = f"runtimes.{name}"
        if not _RUNTIME_ID.fullmatch(name) or ".." in name:
            yield Problem(path, "is no runtime id: letters, digits and . _ : @ / + - only, at most 128")
        if runtime.interactive_reserved_slots >= runtime.max_concurrency:
            hint = f"maxConcurrency is {runtime.max_concurrency}"
            yield Problem(f"{path}.interactiveReservedSlots", "leaves no slot for other requests", hint=hint)
        if runtime.engine == "command" and not runtime.command:
            yield Problem(f"{path}.command", "is missing: engine is command", hint="or set engine")
        if runtime.engine not in ("command", "container") and runtime.command:
            yield Problem(f"{path}.command", f"is only for engine: command, not {runtime.engine}")
        if runtime.keep_warm and runtime.preferred_warm:
            yield Problem(f"{path}.preferredWarm", "says less than keepWarm, which is set too", hint="remove one")
        if runtime.keep_warm and runtime.idle_stop_ms:
            yield Problem(f"{path}.idleStopMs", "contradicts keepWarm", hint="remove one")
        if runtime.port is None:
            continue
        if runtime.port == config.server.port:
            yield Problem(f"{path}.port", f"{runtime.port} is the gateway's own (server.port)")
        if runtime.port in ports:
            yield Problem(f"{path}.port", f"{runtime.port} is also runtimes.{ports[runtime.port]}.port")
        ports.setdefault(runtime.port, name)


def _check_ports(config: Config) -> Iterable[Problem]:
    low, high = config.ports.backends
    if low > high:
        yield Problem("ports.backends", f"starts at {low} and ends at {high}")
    elif low <= config.server.port <= high:
        yield Problem("ports.backends", f"contains server.port {config.server.port}")


def _check_fabrics(config: Config) -> Iterable[Problem]:
    """An adapter hangs on one cable: under two fabrics, traffic would be sent where nobody listens."""
    owners: dict[str, str] = {}
    for fabric, adapters in config.hardware.fabrics.items():
        for adapter in adapters:
            if adapter in owners:
                yield Problem(f"hardware.fabrics.{fabric}", f"{adapter} is also in fabric {owners[adapter]}")
            owners.setdefault(adapter, fabric)


def _check_firewall(config: Config) -> Iterable[Problem]:
    for key, texts in (("networks", config.firewall.networks), ("clients", config.firewall.clients)):
        for index, text in enumerate(texts):
            try:
                parse_network(text)
            except ValueError as error:
                yield Problem(f"firewall.{key}[{index}]", str(error))
