"""What the daemon tells of the node's firewall: the answer of `GET /v1/firewall`.

With `fresh=1` the daemon looks at the table first. Nothing here is ever a guess: where the table could not be read,
`state` is `unguarded`, with the reason beside it.
"""

from core.message import Message


class PeerState(Message, frozen=True, kw_only=True):
    """One host at which the config has other nodes of the cluster."""

    host: str
    """An address or a name."""
    nodes: list[str]
    addresses: list[str] = []
    """What is let through for it: the address, or what the name is known to mean; empty for this machine itself."""
    resolved_at: str = ""
    """Since when the name means that."""
    problem: str = ""
    """Why the name does not resolve; the addresses are then the last that were known."""


class FirewallState(Message, frozen=True, kw_only=True):
    """The table, what it should say, and what was done about it."""

    enabled: bool
    """What the config wants."""
    state: str
    """`guarded`, `unguarded` (wanted, and not to be had) or `off` (not wanted)."""
    code: str = ""
    reason: str = ""
    hint: str = ""
    since: str = ""
    private_ports: list[str] = []
    """Ports and ranges that only `networks`, `peers` and this machine itself reach."""
    networks: list[str] = []
    peers: list[PeerState] = []
    """Who else reaches them: the other nodes of the cluster."""
    gateway_port: int = 0
    clients: list[str] = []
    """Who reaches the gateway's port; empty: everybody."""
    mended: int = 0
    """How often somebody changed the table and it was put right."""
    drift: list[str] = []
    """What had been changed the last time, as lines of nft: `-` was there, `+` was missing."""
    drift_at: str = ""
    table: str | None = None
    """The table as the kernel has it, as nft text with counters; null when there is none or it was not asked for."""
