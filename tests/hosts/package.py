"""The built `.deb`, and a layer of it installed: made once per build and kept between runs.

`with installed_host("a") as host:` is a machine on which `apt-get install ./llmgw_….deb` has just been done and which
was then switched off and on again.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.hosts.harness import Host, Network, base_tree, cached_layer

ROOT = Path(__file__).resolve().parents[2]
_BUILD_LIMIT_S = 900.0
_INSTALL_LIMIT_S = 180.0


@cache
def built_package() -> Path:
    """The package of the tree as it is now; `make` builds it when something is newer."""
    done = subprocess.run(
        ["make", "--silent", "deb"], cwd=ROOT, capture_output=True, text=True, timeout=_BUILD_LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (package,) = (ROOT / "dist").glob("llmgw_*.deb")
    return package


def install(host: Host, package: Path | None = None) -> str:
    """Install the package in a running host, as an operator would; returns what apt said."""
    package = package or built_package()
    shutil.copy(package, host.path("/root/llmgw.deb"))
    done = host.run("apt-get", "install", "--yes", "/root/llmgw.deb", timeout_s=_INSTALL_LIMIT_S)
    return done.stdout + done.stderr


@cache
def installed_layer() -> Path:
    """What the installation changes on a disk, as a layer over the base tree."""
    digest = hashlib.sha256(built_package().read_bytes() + base_tree().name.encode()).hexdigest()[:12]
    return cached_layer("installed", digest, _make_installed_layer)


def _make_installed_layer(layer: Path) -> None:
    with Host("install") as host:
        install(host)
        host.shutdown()
        host.keep_as_layer(layer)


def installed_host(name: str, *, binds: Sequence[tuple[Path | str, str]] = (), net: Network | None = None) -> Host:
    """A host that has the package; to be entered with `with`."""
    return Host(name, layers=[installed_layer()], binds=binds, net=net)


def wait_active(host: Host, *units: str, timeout_s: float = 90.0) -> None:
    """Wait until the units' start jobs are done, and assert that they are active."""
    host.run("systemctl", "start", *units, check=False, timeout_s=timeout_s)
    states = host.run("systemctl", "is-active", *units, check=False).stdout.split()
    assert states == ["active"] * len(units), host.run("journalctl", "--no-pager", "-n", "40", "-u", "llmgw*").stdout
