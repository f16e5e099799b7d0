"""How an upstream is reached beyond its host and port, and whether it is ours at all. Pure.

An engine on this machine is asked in plain HTTP, by our own paths. Somebody else's service is asked over TLS, below
the path of its own base URL, and is told nothing of the client but the request itself (`core.http.heads`).
"""

import msgspec

PREFIX = b"/v1"
"""With it begin the paths that clients use and, as base URLs are written, the address of a service ends."""


class Reach(msgspec.Struct, frozen=True):
    """See the module."""

    tls: bool = False
    ca_file: str = ""
    """PEM file of the authorities that may vouch for it; empty: the system's."""
    base_path: bytes = PREFIX
    """What stands there in the place of `/v1`."""
    is_foreign: bool = False
    """Whether it belongs to somebody else."""

    def path_of(self, path: bytes) -> bytes:
        """What the upstream is asked for one of our paths; one that is not below `/v1` stays as it is."""
        if self.base_path == PREFIX or not path.startswith(PREFIX + b"/"):
            return path
        return self.base_path + path[len(PREFIX) :]

    def authority(self, host: str, port: int) -> str:
        """The value of `host:`. A service with a name of its own is called by it, without the port that goes unsaid."""
        shown = f"[{host}]" if ":" in host else host
        is_usual = self.is_foreign and port == (443 if self.tls else 80)
        return shown if is_usual else f"{shown}:{port}"


NEAR = Reach()
"""An engine of ours."""
