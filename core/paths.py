"""Where everything lies: the system layout of the package, or everything below one `STATE` directory.

The choice is made once, by whoever starts the program (`Layout.system()` or `Layout.under(state)`), and handed
on; nothing else builds a path to our own files. `LLMGW_STATE` in the environment selects the second.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from core.errors import ConfigError

_SUN_PATH_MAX = 107
"""Longest path of a unix socket (`sun_path` is 108 bytes with the final NUL)."""

_LONGEST_SOCKET_NAME = len("/control.sock")
"""Sockets below the supervisor's state are named by us and no longer than this."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The directories and sockets of one installation."""

    config: Path
    environment: Path
    """File of `NAME=value` lines that `${NAME}` in the config may refer to."""
    state: Path
    """What must survive a reboot: weights, homes, last good snapshots."""
    engines: Path
    """Builds of engines: programs, so they lie where programs are run from, and no backup of the state has them."""
    runtime: Path
    """What must not: sockets, keys of running engines."""
    units: Path
    """Where generated unit files are written."""
    logs: Path
    """Log files of the embedded supervisor; systemd logs to the journal."""

    @classmethod
    def system(cls) -> "Layout":
        """The layout that the Debian package uses."""
        return cls(
            config=Path("/etc/llmgw/config.yaml"),
            environment=Path("/etc/llmgw/environment"),
            state=Path("/var/lib/llmgw"),
            engines=Path("/opt/llmgw/engines"),
            runtime=Path("/run/llmgw"),
            units=Path("/run/systemd/system"),
            logs=Path("/var/log/llmgw"),
        )

    @classmethod
    def under(cls, state: Path) -> "Layout":
        """Everything below one directory, for a machine without systemd or without root.

        Raises: ConfigError when the sockets' paths would be too long for the kernel.
        """
        root = state.absolute()
        layout = cls(
            config=root / "config.yaml",
            environment=root / "environment",
            state=root / "lib",
            engines=root / "lib/engines",
            runtime=root / "run",
            units=root / "units",
            logs=root / "log",
        )
        longest = len(os.fsencode(layout.supervisor_state)) + _LONGEST_SOCKET_NAME
        if longest > _SUN_PATH_MAX:
            raise ConfigError(
                f"the state directory {root} is too deep: socket paths may have {_SUN_PATH_MAX} bytes",
                hint="choose a shorter one, for instance STATE=/tmp/llmgw",
                code="state_path_too_long",
            )
        return layout

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Layout":
        """`LLMGW_STATE` and `LLMGW_CONFIG` applied over the system layout."""
        state = environ.get("LLMGW_STATE")
        layout = cls.under(Path(state)) if state else cls.system()
        config = environ.get("LLMGW_CONFIG")
        return replace(layout, config=Path(config).absolute()) if config else layout

    @property
    def daemon_socket(self) -> Path:
        return self.runtime / "daemon.sock"

    @property
    def last_good_config(self) -> Path:
        """The text of the last config that could be used; what the daemon serves by when the file is broken."""
        return self.state / "config.last-good"

    @property
    def keys(self) -> Path:
        """One file per runtime with the key that its engine demands; readable by root and the gateway's group."""
        return self.runtime / "keys"

    @property
    def backend_keys(self) -> Path:
        """Likewise one per backend, with our key for it."""
        return self.runtime / "backend-keys"

    @property
    def client_keys(self) -> Path:
        """Hashes and rules of the keys that `llmgw key create` made. All may see that it is there; root reads it."""
        return self.state / "client-keys.json"

    @property
    def weights(self) -> Path:
        return self.state / "weights"

    @property
    def homes(self) -> Path:
        """One 0700 home per runtime, owned by the engine user."""
        return self.state / "homes"

    @property
    def sockets(self) -> Path:
        """One 0700 directory per runtime that has sockets of its own, named by a hash: a socket's path is short."""
        return self.runtime / "sock"

    @property
    def gates(self) -> Path:
        """One 0700 directory per gated runtime, for its gate alone: the engine beside it cannot write there."""
        return self.state / "gates"

    @property
    def gateway_state(self) -> Path:
        return self.state / "gateway"

    @property
    def usage(self) -> Path:
        """What requests have cost, a file per day; root's own."""
        return self.state / "usage"

    @property
    def firewall_wish(self) -> Path:
        """What a node that may not change the firewall would have root install; untrusted, as far as root goes."""
        return self.state / "firewall.json"

    @property
    def peer_names(self) -> Path:
        """What the names of the cluster's other nodes resolved to last; all may read it."""
        return self.state / "peers.json"

    @property
    def supervisor_state(self) -> Path:
        """The embedded supervisor's records and control socket."""
        return self.runtime / "supervisor"
