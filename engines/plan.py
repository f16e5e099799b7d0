"""Which build of an engine this machine takes, and why not the others. Pure."""

from dataclasses import dataclass

from core.errors import UnavailableError
from engines.machine import Machine
from engines.recipe import BuildRecipe, Recipe


class NoBuildFits(UnavailableError):
    """The recipe has no build that this machine can run."""

    code = "engine_no_build_fits"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One build and everything that speaks against it here; no reasons: it fits."""

    build: BuildRecipe
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """All builds judged, best first."""

    engine: str
    verdicts: tuple[Verdict, ...]

    @property
    def chosen(self) -> BuildRecipe | None:
        return next((verdict.build for verdict in self.verdicts if not verdict.reasons), None)

    def require(self) -> BuildRecipe:
        """Raises: NoBuildFits with the reasons of every build."""
        chosen = self.chosen
        if not self.verdicts:
            raise NoBuildFits(
                f"llmgw has no build of {self.engine} by that name", hint="leave build empty for the best"
            )
        if chosen is None:
            against = "; ".join(f"{v.build.name}: {', '.join(v.reasons)}" for v in self.verdicts)
            raise NoBuildFits(
                f"no build of {self.engine} runs on this machine ({against})",
                hint="set runtimes.<id>.build to the absolute path of an executable of your own",
            )
        return chosen


def plan_build(recipe: Recipe, machine: Machine, wanted: str = "") -> BuildPlan:
    """Judge every build (or only the `wanted` one) for this machine."""
    builds = [build for build in recipe.builds if not wanted or build.name == wanted]
    return BuildPlan(recipe.engine, tuple(Verdict(build, _reasons(build, machine)) for build in builds))


def _reasons(build: BuildRecipe, machine: Machine) -> tuple[str, ...]:
    reasons = []
    if machine.platform not in build.platforms:
        reasons.append(f"is for {' and '.join(build.platforms)}, this is {machine.platform}")
        return tuple(reasons)
    major, minor = build.glibc.split(".")
    if machine.glibc < (int(major), int(minor)):
        has = f"{machine.glibc[0]}.{machine.glibc[1]}" if machine.glibc != (0, 0) else "none"
        reasons.append(f"needs glibc {build.glibc}, this has {has}")
    missing = [feature for feature in build.cpu_features if feature not in machine.cpu_features]
    if missing:
        reasons.append(f"needs a processor with {', '.join(missing)}")
    return tuple(reasons)
