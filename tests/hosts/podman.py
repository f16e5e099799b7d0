"""A layer with Debian's podman over the base tree, made once; hosts have no network, so apt runs beside them."""

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.hosts.harness import Host, base_tree, cached_layer

PACKAGES = ("podman", "crun")
_INSTALL_LIMIT_S = 600.0

_INSTALL = r"""
set -eu
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" "$4"
mount -t proc proc "$4/proc"
cp /etc/resolv.conf "$4/etc/resolv.conf"
apt-config dump --format '%f "%v";%n' Acquire > "$4/etc/apt/apt.conf.d/99here" || true
printf '#!/bin/sh\nexit 101\n' > "$4/usr/sbin/policy-rc.d"
chmod 755 "$4/usr/sbin/policy-rc.d"
shift 3
root=$1
shift
chroot "$root" apt-get -qq update
DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get -qq install --yes --no-install-recommends "$@"
rm -rf "$root/usr/sbin/policy-rc.d" "$root/etc/apt/apt.conf.d/99here"
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*
"""

_IMAGE = r"""
set -eu
# Whiteouts of an overlay are device nodes, which nobody may make in a host: vfs copies whole images, in memory.
mount -t tmpfs tmpfs /var/lib/containers
printf '[storage]\ndriver = "vfs"\ngraphroot = "/var/lib/containers/storage"\nrunroot = "/run/containers"\n' \
    > /etc/containers/storage.conf
tar -C / -c --exclude='*.pyc' bin sbin lib lib64 etc/passwd etc/group usr/bin usr/lib64 usr/lib/llmgw \
    usr/lib/python3.* usr/lib/python3 usr/lib/*-linux-gnu | podman import --quiet - localhost/llmgw/sim >&2
podman images --digests --format '{{.Digest}}' localhost/llmgw/sim
"""


@cache
def podman_layer() -> Path:
    """What the installation of podman changes on a disk, as a layer over the base tree."""
    digest = hashlib.sha256(f"{base_tree().name} {PACKAGES} {_INSTALL}".encode()).hexdigest()[:12]
    return cached_layer("podman", digest, _make_layer)


def _make_layer(layer: Path) -> None:
    with _folders(layer) as (upper, work, root):
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", _INSTALL, "sh"]
            + [str(place) for place in (base_tree(), upper, work, root)]
            + list(PACKAGES),
            capture_output=True, text=True, timeout=_INSTALL_LIMIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
        upper.rename(layer)


@contextmanager
def _folders(layer: Path) -> Iterator[tuple[Path, Path, Path]]:
    making = layer.with_name(f"{layer.name}.partial")
    shutil.rmtree(making, ignore_errors=True)
    folders = making / "upper", making / "work", making / "root"
    try:
        for folder in folders:
            folder.mkdir(parents=True)
        yield folders
    finally:
        shutil.rmtree(making, ignore_errors=True)


def make_image(host: Host) -> str:
    """An image of the simulated engine, out of the host's own files; its name with its digest."""
    digest = host.run("sh", "-c", _IMAGE, timeout_s=180.0).stdout.split()[-1]
    return f"localhost/llmgw/sim@{digest}"
