"""What a recipe file (`engines/recipes/NAME.toml`) may say, and how it is read.

A recipe lists an engine's builds, best first. Every build names what it needs of the machine, the package that
carries it with the digests of its files, and a command that proves that it runs. The files are our own, but a slip
in one must not become a strange failure on a node: unknown keys and bad shapes are refused.
"""

import functools
import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from core.errors import BugError, NotFoundError

_FOLDER = Path(__file__).parent / "recipes"

BuildName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
RelativePath = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]*$")]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of a recipe's parts."""


class Package(_Part, frozen=True, kw_only=True):
    """A wheel on the package index."""

    name: str
    version: str
    sha256: list[Sha256]
    """Of every wheel that is the same thing (one per platform, for instance)."""
    download_bytes: int
    unpacked_bytes: int
    prefix: RelativePath
    """Folder in the wheel that becomes the build's folder."""
    keep: list[RelativePath] = []
    """What below `prefix` is unpacked; empty takes all."""


class Verify(_Part, frozen=True, kw_only=True):
    """How to see that the executable runs here."""

    arguments: list[str]
    expect: str
    """Must occur in what it writes."""
    libraries: dict[str, str] = {}
    """Shared library of the system -> Debian package, for the hint."""


class BuildRecipe(_Part, frozen=True, kw_only=True):
    """One build."""

    name: BuildName
    version: str
    platforms: list[str]
    """`linux-x86_64`, …: the kernel's name and the machine's."""
    glibc: Annotated[str, Meta(pattern=r"^\d+\.\d+$")]
    cpu_features: list[str] = []
    """As /proc/cpuinfo spells them."""
    executable: RelativePath
    package: Package
    verify: Verify
    environment: dict[str, str] = {}


class Recipe(_Part, frozen=True, kw_only=True):
    """All builds of one engine."""

    engine: str
    builds: list[BuildRecipe]


def parse_recipe(text: str) -> Recipe:
    """Raises: BugError: recipes are part of the program."""
    try:
        return msgspec.convert(tomllib.loads(text), Recipe)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BugError(f"a recipe is broken: {error}", code="recipe_invalid") from error


@functools.cache
def load_recipe(engine: str) -> Recipe:
    """Raises: NotFoundError when llmgw installs no builds of this engine."""
    path = _FOLDER / f"{engine}.toml"
    if not engine.isalnum() or not path.is_file():
        raise NotFoundError(f"llmgw has no recipe for the engine {engine[:60]!r}", code="engine_has_no_recipe")
    return parse_recipe(path.read_text(encoding="utf-8"))
