"""The rules of the section `cluster` that no single field can hold. Pure.

Every problem names the node and the field. Nothing that could be a key is ever repeated: where the name of a variable
is wanted, people paste the key itself.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import SplitResult, urlsplit

from core.config.cluster import Cluster, ClusterNode, ProxyModel, bare_host, local_node
from core.config.names import no_such
from core.config.problem import Problem

NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_KEY_LIKE = re.compile(
    r"(sk|pk|hf|ghp|gho|xox[a-z]|glpat)[-_].*[A-Za-z0-9]{16,}"
    r"|.*(?=[A-Z\d]*[a-z])(?=[A-Za-z]*\d)[A-Za-z0-9]{24,}.*"
)
"""How keys begin, or a long run of small letters and digits that nobody would call a variable."""
_HOST_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_DEVICE = re.compile(r"[A-Za-z0-9_.-]+")
_INTERFACE = re.compile(r"[^\s/:]{1,15}")
_PORTS = {"http": 80, "https": 443}


def check_cluster(cluster: Cluster, host_name: str) -> Iterable[Problem]:
    """`host_name` is this machine's, by which it finds itself when nothing else says which node it is."""
    yield from check_variable("cluster.apiKeyEnv", cluster.api_key_env)
    if not cluster.nodes:
        return
    here = local_node(cluster, host_name)
    if here not in cluster.nodes:
        missing, known = no_such("node", here, cluster.nodes), ", ".join(cluster.nodes)
        how = missing if cluster.node_id else f"is not set, and by its host name this machine is {here}: {missing}"
        yield Problem("cluster.nodeId", how, hint=f"cluster.nodes has {known}")
    if cluster.leader_node and cluster.leader_node not in cluster.nodes:
        yield Problem("cluster.leaderNode", no_such("node", cluster.leader_node, cluster.nodes))
    for node_id, node in cluster.nodes.items():
        yield from _check_node(f"cluster.nodes.{node_id}", node_id, node, is_here=node_id == here)
    yield from _check_shared(cluster.nodes, "endpoint", lambda node: _normal(node.endpoint))
    yield from _check_shared(cluster.nodes, "backendHost", lambda node: _same_host(node.backend_host))


def _check_node(path: str, node_id: str, node: ClusterNode, *, is_here: bool) -> Iterable[Problem]:
    if not NODE_ID.fullmatch(node_id):
        yield Problem(path, "is no node id: letters, digits and . _ - only, at most 64")
    if not node.endpoint and node.enabled and not is_here:
        yield Problem(f"{path}.endpoint", f"is missing: {node_id} is another machine", hint="the URL of its gateway")
    if node.endpoint:
        yield from _check_url(f"{path}.endpoint", node.endpoint)
    if node.proxy.base_url:
        yield from _check_url(f"{path}.proxy.baseUrl", node.proxy.base_url)
    if node.backend_host and not _is_host(node.backend_host):
        hint = "without scheme and port: 10.10.10.2"
        yield Problem(f"{path}.backendHost", "is neither an address nor the name of a machine", hint=hint)
    if node.fabric_interface and not _INTERFACE.fullmatch(node.fabric_interface):
        yield Problem(f"{path}.fabricInterface", f"{node.fabric_interface!r} is no name of a network interface")
    if node.fabric_hca:
        yield from _check_devices(f"{path}.fabricHca", node.fabric_hca)
    yield from check_variable(f"{path}.apiKeyEnv", node.api_key_env)
    if node.proxy.namespace is True:
        yield Problem(f"{path}.proxy.namespace", "is true; write a name, or false for none")
    for index, model in enumerate(node.proxy.models):
        if isinstance(model, ProxyModel) and model.id is None and model.model is None:
            yield Problem(f"{path}.proxy.models[{index}].id", "is missing")
        if model == "":
            yield Problem(f"{path}.proxy.models[{index}]", "is empty")


def check_variable(path: str, name: str) -> Iterable[Problem]:
    """Whether that can be the name of a variable, and is no key. Empty: none is named."""
    if name and (not _VARIABLE.fullmatch(name) or _KEY_LIKE.fullmatch(name)):
        yield Problem(
            path,
            "is not the name of a variable; it may be a key, so it is not shown",
            hint="put the key into the environment file as NAME=KEY, and write NAME here, without ${}",
        )


def _check_url(path: str, url: str) -> Iterable[Problem]:
    """Credentials are looked for first, and then nothing of the URL is repeated."""
    parts = _split(url)
    if "@" in url:
        yield Problem(path, "has credentials in it, which is not shown", hint="use apiKeyEnv")
        return
    if parts is None or parts.scheme not in _PORTS or not _is_host(parts.hostname or ""):
        yield Problem(path, "is no URL of a gateway", hint="as in http://10.10.10.2:8100")
        return
    if parts.query or parts.fragment or url.endswith(("?", "#")):
        yield Problem(path, "has a query or a fragment", hint="as in http://10.10.10.2:8100")


def _split(url: str) -> SplitResult | None:
    if not url.isprintable() or any(character.isspace() for character in url):
        return None
    try:
        parts = urlsplit(url)
        return parts if parts.port is None or parts.port > 0 else None
    except ValueError:
        return None


def _is_host(text: str) -> bool:
    """An address of one machine, or a name that may resolve to some."""
    bare = bare_host(text)
    if (address := _address(bare)) is not None:
        return not (address.is_unspecified or address.is_multicast)
    labels = bare.removesuffix(".").split(".")
    # Numbers with dots between them are an address that was mistyped, and never a name.
    return len(bare) <= 253 and all(map(_HOST_LABEL.fullmatch, labels)) and not labels[-1].isdigit()


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text) if "%" not in text else None
    except ValueError:
        return None


def _check_devices(path: str, text: str) -> Iterable[Problem]:
    names = text.split(",")
    for name in names:
        if not _DEVICE.fullmatch(name):
            hint = "RDMA devices with commas between them, no spaces, no ports: mlx5_0,mlx5_1"
            yield Problem(path, f"{name!r} is no RDMA device", hint=hint)
            return
    if len(set(names)) < len(names):
        yield Problem(path, "names a device twice")


def _check_shared(
    nodes: Mapping[str, ClusterNode], key: str, value_of: Callable[[ClusterNode], str]
) -> Iterable[Problem]:
    """Two nodes are not one: requests and orders for the second would reach the first."""
    seen: dict[str, str] = {}
    for node_id, node in nodes.items():
        value = value_of(node)
        if value and value in seen:
            yield Problem(f"cluster.nodes.{node_id}.{key}", f"is also that of {seen[value]}")
        seen.setdefault(value, node_id)


def _normal(endpoint: str) -> str:
    """One spelling for URLs that lead to one place; empty for one that is refused anyhow."""
    parts = _split(endpoint)
    if parts is None or parts.scheme not in _PORTS or not parts.hostname:
        return ""
    port = parts.port or _PORTS[parts.scheme]
    return f"{_same_host(parts.hostname)} {port} {parts.path.rstrip('/')}"


def _same_host(text: str) -> str:
    bare = bare_host(text).removesuffix(".")
    address = _address(bare)
    return bare if address is None else str(address)
