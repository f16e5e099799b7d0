"""A mirror: one tree of files that stands for the places that builds and weights come from. Pure.

It is a directory of this machine, or the address of a folder that a web server gives out as it is:

    pypi/NAME-VERSION-….whl                           wheels
    pypi/NAME.lock                                    of an environment: which of them it is made of
    archives/NAME                                     archives of projects' releases and sources
    https/DIGEST/NAME                                 weights of `https:` sources, as in the weights' own folder
    hub/api/models/ORG/REPO/revision/REVISION         Hugging Face's answer, which files a model has
    hub/ORG/REPO/resolve/COMMIT/PATH                  the files

`engines.NAME.mirror` goes before `engines.mirror` (packages alone), and that before `offline.mirror`. A mirror changes
where something comes from, never what: the digests are the same ones. What it lacks is not looked for anywhere else.
"""

from dataclasses import dataclass
from pathlib import Path

from core.config.problem import Problem
from core.config.schema import Config
from engines.packages import MirrorInvalid, Packages, parse_packages
from engines.sources import may_fetch

ENGINES = ("llamacpp", "vllm", "sglang", "trtllm", "comfyui")


@dataclass(frozen=True, slots=True)
class Mirror:
    """One tree, and the setting that names it."""

    place: str
    """An absolute path, or an address; without a slash at its end."""
    setting: str

    @property
    def is_here(self) -> bool:
        """Whether it is a directory of this machine."""
        return self.place.startswith("/")

    def address(self, path: str) -> str:
        """Where `path` of the tree lies: a path or a URL."""
        return f"{self.place}/{path}"

    @property
    def packages(self) -> Packages:
        """The wheels in it."""
        where = self.address("pypi")
        if self.is_here:
            return Packages(folder=Path(where), setting=self.setting)
        return Packages(page=f"{where}/", setting=self.setting)

    def __str__(self) -> str:
        return f"{self.place} ({self.setting})"


def named_mirrors(config: Config) -> list[Mirror]:
    """Every tree that the config names."""
    given = {f"engines.{engine}.mirror": getattr(config.engines, engine).mirror for engine in ENGINES}
    given["offline.mirror"] = config.offline.mirror
    return [_mirror(text, setting) for setting, text in given.items() if text]


def find_mirror(engine: str, config: Config) -> Mirror | None:
    """The tree that this engine's builds come from; with an empty name, that of what is no engine's own."""
    named = {mirror.setting: mirror for mirror in named_mirrors(config)}
    return named.get(f"engines.{engine}.mirror") or named.get("offline.mirror")


def packages_for(engine: str, config: Config) -> Packages:
    """Where this engine's packages come from; with an empty name, those of weights. Raises: MirrorInvalid."""
    mirror = find_mirror(engine, config)
    if mirror is not None and (mirror.setting != "offline.mirror" or not config.engines.mirror):
        return mirror.packages
    return parse_packages(config.engines.mirror)


def describe_mirrors(engine: str, config: Config) -> list[str]:
    """Which places this engine's builds come from, in words; nothing where each comes from its own."""
    mirror, packages = find_mirror(engine, config), packages_for(engine, config)
    lines = [str(mirror)] if mirror is not None else []
    if packages.is_given and packages.setting == "engines.mirror":
        lines.insert(0, f"{packages.place} (engines.mirror) for packages")
    return lines


def judge_mirrors(config: Config) -> list[Problem]:
    """Places that can be no mirror."""
    hint = "an absolute path, or the https:// address of a folder without a password in it"
    problems = [
        Problem(mirror.setting, "is no place that files are fetched from", hint=hint)
        for mirror in named_mirrors(config)
        if not mirror.is_here and (not may_fetch(mirror.place) or "?" in mirror.place or "#" in mirror.place)
    ]
    try:
        parse_packages(config.engines.mirror)
    except MirrorInvalid as error:
        problems.append(Problem("engines.mirror", "is neither a folder of wheels nor an index", hint=error.hint))
    return problems


def _mirror(text: str, setting: str) -> Mirror:
    return Mirror(text.removeprefix("file://").rstrip("/") or "/", setting)
