"""Recipes with the digests of archives that an operator gave. Pure but for the recipe's file.

Whoever publishes an archive says its SHA-256 on the release's page, or the operator fetches it and looks. It is not
ours to vouch for, and nothing is fetched without one; so it stands in the config, and the build of the recipe is one
like any other from then on. The digest of a source archive of another version makes builds of that version.
"""

import re
from collections.abc import Mapping

import msgspec

from core.config.schema import Config
from engines.machine import parse_version
from engines.mirror import Mirror, find_mirror
from engines.recipe import BuildRecipe, Recipe, load_recipe

MADE_OF_ARCHIVES = ("llamacpp", "comfyui")
"""Engines whose builds an operator's digests complete."""

_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z._+]{0,39}")


def recipe_for(engine: str, config: Config) -> Recipe:
    """The engine's recipe, as the config completes it. Raises: NotFoundError."""
    return give_digests(load_recipe(engine), digests_in(engine, config), find_mirror(engine, config))


def digests_in(engine: str, config: Config) -> Mapping[str, str]:
    """What the operator gave for this engine."""
    own = {"llamacpp": config.engines.llamacpp.digests, "comfyui": config.engines.comfyui.digests}
    return own.get(engine, {})


def give_digests(recipe: Recipe, digests: Mapping[str, str], mirror: Mirror | None = None) -> Recipe:
    """The recipe with the operator's digests, and with the mirror in the place of the archives' own address.

    Builds of a source archive that the recipe does not know come first, the newest before the others. Pure.
    """
    further = [
        _of_version(build, version)
        for version in sorted(_further_versions(recipe, digests), key=parse_version, reverse=True)
        for build in recipe.builds
        if build.source is not None and build.version == _first_version(recipe)
    ]
    builds = [_filled(build, digests, mirror) for build in (*further, *recipe.builds)]
    return msgspec.structs.replace(recipe, builds=builds)


def file_names(recipe: Recipe) -> list[str]:
    """Every archive that a build of the recipe may come from."""
    releases = [build.release for build in recipe.builds if build.release is not None]
    sources = {build.source.archive for build in recipe.builds if build.source is not None}
    return sorted({name for release in releases for names in release.files.values() for name in names} | sources)


def is_archive(recipe: Recipe, name: str) -> bool:
    """Whether a build may come from an archive of this name: one of the recipe's, or its source in another version."""
    return name in file_names(recipe) or bool(_further_versions(recipe, [name]))


def _filled(build: BuildRecipe, digests: Mapping[str, str], mirror: Mirror | None) -> BuildRecipe:
    release, source = build.release, build.source
    if release is not None:
        names = {name for names in release.files.values() for name in names}
        known = {name: digest for name, digest in digests.items() if name in names}
        url = mirror.address("archives/") if mirror else release.url
        return msgspec.structs.replace(build, release=msgspec.structs.replace(release, sha256=known, url=url))
    if source is not None:
        url = mirror.address(f"archives/{source.archive}") if mirror else source.url
        digest = digests.get(source.archive, "")
        return msgspec.structs.replace(build, source=msgspec.structs.replace(source, sha256=digest, url=url))
    return build


def _first_version(recipe: Recipe) -> str:
    return next((build.version for build in recipe.builds if build.source is not None), "")


def _further_versions(recipe: Recipe, names: Mapping[str, str] | list[str]) -> set[str]:
    """Versions that the recipe does not know, of archives that are called as its own."""
    known = {build.version for build in recipe.builds}
    found = set()
    for build in recipe.builds:
        if build.source is not None:
            before, _, after = build.source.archive.partition(build.version)
            found |= {
                name[len(before) : len(name) - len(after)]
                for name in names
                if name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after)
            }
    return {version for version in found - known if _VERSION.fullmatch(version)}


def _of_version(build: BuildRecipe, version: str) -> BuildRecipe:
    """The build in another version. Nothing says on which day that stood in the index, so today counts."""

    def swap(text: str) -> str:
        return text.replace(build.version, version)

    source = build.source
    if source is not None:
        source = msgspec.structs.replace(source, archive=swap(source.archive), url=swap(source.url), date="")
    verify = msgspec.structs.replace(build.verify, expect=swap(build.verify.expect))
    return msgspec.structs.replace(build, version=version, source=source, verify=verify)
