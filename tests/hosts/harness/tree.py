"""The base tree: a small Debian with systemd, made once by mmdebstrap and shared by every test host.

It lies in `/var/tmp/llmgw-testhost/SUITE-HASH`, where HASH covers everything that goes into it, so an edit of the
lists below makes a new tree and leaves one that is in use alone. A tree is never written to: hosts mount it as the
lowest layer of an overlay. Call `base_tree()`; the first call on a machine takes half a minute.
"""

import fcntl
import hashlib
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "udev",
    "nftables",
    "iproute2",
    "procps",
    "curl",
    "ca-certificates",
    "python3",
    "python3-gi",
    "python3-pydbus",
    "python3-nftables",
    "umockdev",
    "gir1.2-umockdev-1.0",
    "libgomp1",
    "libudev1",
    "bash-completion",
)
"""What our package depends on, and what a test needs to look around. Hosts have no network to fetch the rest."""

MASKED = (
    # It would write sysctls of the machine that the tests run on.
    "systemd-sysctl.service",
    # Consoles, seats and clocks that a namespace has not.
    "getty@.service",
    "console-getty.service",
    "systemd-logind.service",
    "systemd-timesyncd.service",
    "systemd-pcrphase.service",
    # Housekeeping that only makes a boot slower and its journal longer.
    "e2scrub_reap.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "dpkg-db-backup.timer",
    "systemd-tmpfiles-clean.timer",
)

_MIRROR_FILES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources")
_BUILD_LIMIT_S = 900.0


class TreeFailed(Exception):
    """mmdebstrap could not make the tree; the message holds its last lines."""


def cache_directory() -> Path:
    """Where trees, layers and downloaded wheels are kept between runs."""
    directory = Path(os.environ.get("LLMGW_TESTHOST_CACHE", "/var/tmp/llmgw-testhost"))
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    return directory


def running_suite() -> str:
    """The code name of the Debian that this machine runs, `bookworm` for one."""
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "bookworm")


@contextmanager
def cache_lock(name: str) -> Iterator[None]:
    """Hold the cache's lock `name`, so that two test runs do not make the same thing twice."""
    with (cache_directory() / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def base_tree(suite: str = "") -> Path:
    """The base tree of `suite` (default: this machine's own), made now if it is missing.

    Raises: TreeFailed.
    """
    suite = suite or running_suite()
    recipe = "\n".join((*PACKAGES, "", *MASKED))
    tree = cache_directory() / f"{suite}-{hashlib.sha256(recipe.encode()).hexdigest()[:10]}"
    if tree.is_dir():
        return tree
    with cache_lock(tree.name):
        if not tree.is_dir():
            partial = tree.with_name(f"{tree.name}.partial")
            subprocess.run(["rm", "-rf", str(partial)], check=True, timeout=120)
            _debootstrap(suite, partial)
            for unit in MASKED:
                (partial / "etc/systemd/system" / unit).symlink_to("/dev/null")
            partial.rename(tree)
    return tree


def _debootstrap(suite: str, target: Path) -> None:
    argv = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    for option in ("Acquire::http::Proxy", "Acquire::https::Proxy"):
        value = subprocess.run(["apt-config", "shell", "V", option], capture_output=True, text=True, timeout=30).stdout
        if value.strip():
            argv.append(f"--aptopt={option} {value.strip().removeprefix('V=').strip(chr(39))!r}".replace("'", '"'))
    argv += [suite, str(target)]
    if suite == running_suite():
        argv += [name for name in _MIRROR_FILES if Path(name).is_file()]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_BUILD_LIMIT_S, check=False)
    except FileNotFoundError as error:
        raise TreeFailed("mmdebstrap is not installed: `make test` as root installs it") from error
    if done.returncode != 0:
        raise TreeFailed(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
