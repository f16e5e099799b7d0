"""Recipes with the digests of release archives that an operator gave. Pure but for the recipe's file.

Whoever publishes an archive says its SHA-256 on the release's page. It is not ours to vouch for, and nothing is fetched
without one; so it stands in the config, and the build of the recipe is one like any other from then on.
"""

from collections.abc import Mapping

import msgspec

from core.config.schema import Config
from engines.mirror import Mirror, find_mirror
from engines.recipe import BuildRecipe, Recipe, load_recipe


def recipe_for(engine: str, config: Config) -> Recipe:
    """The engine's recipe, as the config completes it. Raises: NotFoundError."""
    digests = config.engines.llamacpp.digests if engine == "llamacpp" else {}
    return give_digests(load_recipe(engine), digests, find_mirror(engine, config))


def give_digests(recipe: Recipe, digests: Mapping[str, str], mirror: Mirror | None = None) -> Recipe:
    """The recipe with the operator's digests, and with the mirror in the place of the releases' own address. Pure."""

    def filled(build: BuildRecipe) -> BuildRecipe:
        if build.release is None:
            return build
        names = {name for names in build.release.files.values() for name in names}
        known = {name: digest for name, digest in digests.items() if name in names}
        url = mirror.address("archives/") if mirror else build.release.url
        return msgspec.structs.replace(build, release=msgspec.structs.replace(build.release, sha256=known, url=url))

    return msgspec.structs.replace(recipe, builds=[filled(build) for build in recipe.builds])


def file_names(recipe: Recipe) -> list[str]:
    """Every archive that a build of the recipe may come from."""
    releases = [build.release for build in recipe.builds if build.release is not None]
    return sorted({name for release in releases for names in release.files.values() for name in names})
