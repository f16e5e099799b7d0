"""Makes wheels that pip takes, in a folder that stands for the package index."""

import hashlib
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

from engines.recipe import Recipe, parse_recipe

SERVER = "#!/bin/sh\necho 'version: 1 (fake)'\n"


@dataclass(frozen=True)
class MadeWheel:
    path: Path
    sha256: str


def make_wheel(
    folder: Path, name: str, files: dict[str, bytes], *, executables: tuple[str, ...] = (), version: str = "1.0"
) -> MadeWheel:
    """A wheel with these members and valid metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as wheel:
        for member, data in files.items():
            entry = zipfile.ZipInfo(member)
            entry.external_attr = (0o100755 if member in executables else 0o100644) << 16
            wheel.writestr(entry, data)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return MadeWheel(path, hashlib.sha256(path.read_bytes()).hexdigest())


def make_engine(folder: Path, *, ballast_bytes: int = 0, server: str = SERVER, version: str = "1.0") -> MadeWheel:
    """A wheel with an engine in it: a program that says its version, and incompressible ballast."""
    files = {
        "fake_engine/bin/server": server.encode(),
        "fake_engine/bin/ballast.so": os.urandom(ballast_bytes),
        "fake_engine/__init__.py": b"",
    }
    return make_wheel(folder, "fake_engine", files, executables=("fake_engine/bin/server",), version=version)


def make_recipe(sha256: str, *, unpacked_bytes: int = 64 << 20) -> Recipe:
    """A recipe whose one build is that wheel, for any machine."""
    return parse_recipe(
        f"""
        engine = "fake"
        [[builds]]
        variant = "wheel"
        version = "1.0"
        platforms = ["linux-x86_64", "linux-aarch64"]
        glibc = "2.0"
        executable = "bin/server"
        package = {{ name = "fake-engine", version = "1.0", sha256 = ["{sha256}"], download_bytes = {unpacked_bytes},
                     unpacked_bytes = {unpacked_bytes}, prefix = "fake_engine/", keep = ["bin/"] }}
        verify = {{ arguments = ["--version"], expect = "version:", libraries = {{ "libnone.so.1" = "libnone1" }} }}
    """.replace("\n                     ", " ")
    )
