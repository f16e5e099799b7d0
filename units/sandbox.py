"""What a unit's process can reach of the machine, as systemd directives. Pure.

An engine runs code of others and reads files of others (weights), so it gets its cards, its home, its weights and the
network, and nothing else. `systemd-analyze security` calls the result OK (a test keeps the score from rising).

Two groups of paths need care: below the homes and in the temporary folders systemd shows an empty folder instead,
so what was granted there is mounted into it; anywhere else a grant only changes what may be written.
"""

from collections.abc import Iterator

from units.model import Sandbox
from units.words import WordRefused, quote_word, wrap_quotes

_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - these are the folders that get hidden
_HIDDEN_BY_TMPFS = ("/home", "/root", "/run/user")

_ALWAYS = (
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
    "ProtectSystem=strict",
    "PrivateTmp=yes",
    "PrivateMounts=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectControlGroups=yes",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    # /proc/meminfo and /proc/cpuinfo are what engines size themselves by, so ProcSubset stays at all.
    "ProtectProc=invisible",
    "LockPersonality=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "RestrictNamespaces=yes",
    # Netlink: NCCL and gloo list the interfaces with it.
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "SystemCallFilter=~@privileged",
    # An error instead of a signal: an engine that tries a luxury (io_uring, mbind, …) goes on without it.
    "SystemCallErrorNumber=EPERM",
    # Segments in /dev/shm go when the last unit of this user stops; systemd counts its users.
    "RemoveIPC=yes",
)


def render_sandbox(sandbox: Sandbox) -> Iterator[str]:
    """The directives. Raises: WordRefused for a path that is not absolute or cannot be written."""
    yield from _ALWAYS
    if not sandbox.allow_jit:
        yield "MemoryDenyWriteExecute=yes"
    yield from _render_devices(sandbox.device_allow)
    yield from _render_paths(sandbox)


def _render_devices(devices: tuple[str, ...]) -> Iterator[str]:
    if not devices:
        yield "PrivateDevices=yes"
        yield "DevicePolicy=closed"
        return
    yield "DevicePolicy=closed"
    for device in devices:
        if not device.startswith(("/dev/", "char-", "block-")):
            raise WordRefused(f"DeviceAllow needs a node below /dev or a class: {device[:80]!r}")
        yield f"DeviceAllow={quote_word(device, directive='DeviceAllow', dollars=False)} rw"


def _render_paths(sandbox: Sandbox) -> Iterator[str]:
    granted = (*sandbox.read_write_paths, *sandbox.read_only_paths)
    # tmpfs instead of yes: below an inaccessible folder systemd drops every other grant without a word.
    yield f"ProtectHome={'tmpfs' if any(_is_below(path, _HIDDEN_BY_TMPFS) for path in granted) else 'yes'}"
    for path in sandbox.read_write_paths:
        yield _render_grant(path, "ReadWritePaths", "BindPaths")
    for path in sandbox.read_only_paths:
        yield _render_grant(path, "ReadOnlyPaths", "BindReadOnlyPaths")


def _render_grant(path: str, visible: str, hidden: str) -> str:
    """`-`: a path that does not exist is no failure."""
    directive = hidden if _is_below(path, _HIDDEN) else visible
    if not path.startswith("/") or ".." in path.split("/"):
        raise WordRefused(f"{directive} needs an absolute path without '..': {path[:80]!r}")
    word = quote_word(f"-{path}", directive=directive, dollars=False)
    if directive == hidden and ":" in path and not word.startswith('"'):
        word = wrap_quotes(word)  # a bare colon would begin the destination
    return f"{directive}={word}"


def _is_below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
