"""A project that comes as a source archive: a program of two files that needs a package of the index."""

import hashlib
from pathlib import Path

from engines.recipe import Recipe, parse_recipe
from tests.integration.engines.archives import an_archive

ARCHIVE = "Tree-1.0.tar.gz"
MAIN = b"""import argparse
import sys

import helper
import part

parser = argparse.ArgumentParser()
parser.add_argument("--scratch")
for flag in ("--listen", "--port", "--base-directory", "--database-url"):
    parser.add_argument(flag)
arguments = parser.parse_args()
if arguments.scratch:
    open(arguments.scratch + "/written", "x").close()
print("tree", part.VERSION, "with helper", helper.VERSION)
"""


def a_tree(version: str = "1.0", *, requirements: bytes = b"# what it needs\nhelper\n", main: bytes = MAIN) -> bytes:
    """The archive."""
    around = f"Tree-{version}"
    files = {
        f"{around}/main.py": main,
        f"{around}/part/__init__.py": f"VERSION = '{version}'\n".encode(),
        f"{around}/requirements.txt": requirements,
    }
    return an_archive(files)


def tree_recipe(sha256: str, url: str, *, also: str = "", date: str = "2026-02-02") -> Recipe:
    """A recipe whose one build is that tree, for any machine."""
    return parse_recipe(
        f"""
        engine = "fake"
        [[builds]]
        variant = "cpu"
        version = "1.0"
        platforms = ["linux-x86_64", "linux-aarch64"]
        glibc = "2.0"
        executable = "bin/python"
        verify = {{ arguments = ["source/main.py", "--scratch", "{{scratch}}"], expect = "tree 1.0" }}
        [builds.source]
        archive = "{ARCHIVE}"
        url = "{url}"
        sha256 = "{sha256}"
        also = [{also}]
        date = "{date}"
        python_min = "3.0"
        python_max = "3.99"
        download_bytes = 1
        unpacked_bytes = 1
        source_bytes = 100000
    """
    )


def put_tree(folder: Path) -> str:
    """The archive in the folder. Returns its digest."""
    folder.mkdir(exist_ok=True)
    (folder / ARCHIVE).write_bytes(a_tree())
    return hashlib.sha256(a_tree()).hexdigest()
