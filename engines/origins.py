"""Where weights come from on this machine, as config and environment say. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from core.config.schema import Config
from engines.hub import Hub
from engines.mirror import Mirror, find_mirror, packages_for
from engines.packages import Packages
from engines.sources import WebSource


@dataclass(frozen=True, slots=True)
class Origins:
    """One place for each kind of source."""

    packages: Packages = Packages()
    hub: Hub = Hub()
    mirror: Mirror | None = None
    """Of files of the web; None: each comes from its own address."""

    def address(self, source: WebSource) -> str:
        """Where the file is asked for."""
        return self.mirror.address(f"https/{source.member}") if self.mirror else source.url


def find_origins(config: Config, environ: Mapping[str, str]) -> Origins:
    """`HF_ENDPOINT` goes before `offline.mirror`, which is shown no token. Raises: MirrorInvalid."""
    mirror = find_mirror("", config)
    hub = Hub.from_environment(environ)
    if mirror is not None and not environ.get("HF_ENDPOINT"):
        hub = Hub(mirror.address("hub"))
    return Origins(packages_for("", config), hub, mirror)
