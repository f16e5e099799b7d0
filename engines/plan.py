"""Which build of an engine this machine takes, and why not the others. Pure."""

from dataclasses import dataclass

import msgspec

from core.errors import NotFoundError, UnavailableError
from engines.machine import Gpu, Machine, parse_version
from engines.recipe import BuildRecipe, Cuda, Recipe


class NoBuildFits(UnavailableError):
    """The recipe has no build that this machine can run."""

    code = "engine_no_build_fits"


class VersionUnknown(NotFoundError):
    """The recipe has no build of that version."""

    code = "engine_version_unknown"


class VariantUnknown(NotFoundError):
    """The recipe has no build of that variant, in that version."""

    code = "engine_variant_unknown"


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
    def fitting(self) -> list[BuildRecipe]:
        """Those that can run here, best first."""
        return [verdict.build for verdict in self.verdicts if not verdict.reasons]

    @property
    def chosen(self) -> BuildRecipe | None:
        return next(iter(self.fitting), None)

    def require(self) -> BuildRecipe:
        """Raises: NoBuildFits with the reasons of every build."""
        chosen = self.chosen
        if chosen is None:
            against = "; ".join(f"{v.build.name}: {', '.join(v.reasons)}" for v in self.verdicts)
            raise NoBuildFits(
                f"no build of {self.engine} runs on this machine ({against})",
                hint="set runtimes.<id>.build to the absolute path of an executable of your own",
            )
        return chosen


def select_builds(recipe: Recipe, version: str = "", variant: str = "") -> Recipe:
    """The recipe with the builds of this version, of this variant, or the one that both name; empty names all.

    Raises: VersionUnknown, VariantUnknown.
    """
    of_version = [build for build in recipe.builds if version in ("", build.version)]
    if not of_version:
        known = dict.fromkeys(build.version for build in recipe.builds)
        source = next((build for build in recipe.builds if build.source), None)
        takes = f", or give one: engines.{recipe.engine}.digests" if source else ""
        raise VersionUnknown(
            f"no digest of {recipe.engine} {version[:60]!r} is known, and nothing is installed without one",
            hint=f"there is {', '.join(known) or 'none'}: llmgw engine plan {recipe.engine}{takes}",
        )
    builds = [build for build in of_version if variant in ("", build.variant)]
    if not builds:
        known = dict.fromkeys(build.variant for build in of_version)
        what = " ".join(filter(None, (recipe.engine, version)))
        raise VariantUnknown(
            f"there is no variant {variant[:60]!r} of {what}",
            hint=f"there is {', '.join(known)}: llmgw engine plan {recipe.engine}",
        )
    return msgspec.structs.replace(recipe, builds=builds)


def plan_build(recipe: Recipe, machine: Machine) -> BuildPlan:
    """Judge every build for this machine."""
    verdicts = [Verdict(build, _reasons(recipe.engine, build, machine)) for build in recipe.builds]
    return BuildPlan(recipe.engine, tuple(verdicts))


def _reasons(engine: str, build: BuildRecipe, machine: Machine) -> tuple[str, ...]:
    """What of the machine speaks against it; for a build that would run here, why it cannot be had."""
    if machine.platform not in build.platforms:
        return (f"is for {' and '.join(build.platforms)}, this is {machine.platform}",)
    reasons = [*_system_reasons(build, machine), *_card_reasons(build, machine)]
    if build.unresolved and not reasons:
        reasons.append(f"would run here, but {build.unresolved}")
    if not reasons and (lacking := build.lacks(machine.platform)):
        how = f" (sha256sum of {build.source.url})" if build.source else ""
        reasons.append(
            f"would run here, but the digest of {' and '.join(lacking)} is not known:"
            f" engines.{engine}.digests takes it{how}"
        )
    return tuple(reasons)


def _system_reasons(build: BuildRecipe, machine: Machine) -> list[str]:
    reasons = []
    if machine.glibc < _version(build.glibc):
        has = _text(machine.glibc) if machine.glibc != (0, 0) else "none"
        reasons.append(f"needs glibc {build.glibc}, this has {has}")
    missing = [feature for feature in build.cpu_features if feature not in machine.cpu_features]
    if missing:
        reasons.append(f"needs a processor with {', '.join(missing)}")
    if build.pythons and (reason := python_reason(build.pythons, machine.python)):
        reasons.append(reason)
    return reasons


def python_reason(pythons: tuple[str, str], this: tuple[int, int]) -> str:
    """Why no environment can be made with this Python; empty when one can."""
    oldest, newest = pythons
    fits = _version(oldest) <= this <= _version(newest)
    return "" if fits else f"needs Python {oldest} to {newest}, this has {_text(this)}"


def _card_reasons(build: BuildRecipe, machine: Machine) -> list[str]:
    """Why it does not compute where it should. Never the processor alone beside usable cards."""
    if machine.gpus:
        if build.cuda:
            return _cuda_reasons(build.cuda, machine)
        if "vulkan" not in build.computes:
            cards = machine.gpus[0].name
            return [f"would leave the cards unused ({cards}): it computes on {' and '.join(build.computes)} only"]
        return []
    if "cpu" in build.computes or ("vulkan" in build.computes and machine.other_gpus):
        return []
    if "rocm" in build.computes:
        return [] if "AMD" in machine.other_gpus else ["needs a card of AMD's with its driver"]
    return ["needs an NVIDIA card with its driver" if build.cuda else "needs a card"]


def _cuda_reasons(cuda: Cuda, machine: Machine) -> list[str]:
    if machine.driver < parse_version(cuda.driver):
        return [f"needs the NVIDIA driver {cuda.driver} or newer, this has {_text(machine.driver) or 'none'}"]
    reasons = [reason for gpu in machine.gpus if (reason := _gpu_reason(cuda, gpu, machine.cuda))]
    return list(dict.fromkeys(reasons))


def _gpu_reason(cuda: Cuda, gpu: Gpu, serves: tuple[int, int]) -> str:
    """Why the card cannot run its kernels; empty when it can."""
    card = f"{gpu.name} (compute capability {_text(gpu.capability)})"
    if cuda.floor:
        return "" if gpu.capability >= _version(cuda.floor) else f"needs compute capability {cuda.floor}, not {card}"
    if any(_runs_natively(arch, gpu.capability) for arch in cuda.native):
        return ""
    if any(_version(arch.rstrip("af")) <= gpu.capability for arch in cuda.ptx):
        if serves >= _version(cuda.toolkit):
            return ""
        return f"must be compiled for {card} by a driver that serves CUDA {cuda.toolkit}; it serves {_text(serves)}"
    return f"has no kernels for {card}"


def _runs_natively(arch: str, capability: tuple[int, int]) -> bool:
    major, minor = _version(arch.rstrip("af"))
    if arch.endswith("a"):
        return capability == (major, minor)
    return capability[0] == major and capability[1] >= minor


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return (int(major), int(minor or 0))


def _text(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version)
