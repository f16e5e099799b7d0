"""Builds on the disk: which one is used, going back, removing, and the next one when the best does not compute."""

from pathlib import Path

import msgspec
import pytest

from core.api import Progress
from engines.builds import (
    BuildInUse,
    BuildUnknown,
    find_build,
    list_builds,
    prunable_builds,
    prune_builds,
    read_active,
    remove_build,
    roll_back,
)
from engines.install import BuildBroken, install_build
from engines.machine import Gpu, Machine, read_machine
from engines.packages import Packages
from engines.recipe import BuildRecipe, Recipe, Verify
from tests.integration.engines.wheels import SERVER, make_engine, make_recipe

SEES_CARDS = "#!/bin/sh\necho 'version: 1'\necho 'card 0'\n"


def recipe_of(folder: Path, servers: dict[str, str]) -> Recipe:
    """A recipe with a build for each server program, best first, and an index that has them all."""
    builds: list[BuildRecipe] = []
    for number, (name, server) in enumerate(servers.items()):
        wheel = make_engine(folder, server=server, version=f"{number}.0")
        build = make_recipe(wheel.sha256).builds[0]
        assert build.package is not None
        verify = Verify(arguments=["--version"], expect="version:", gpu_arguments=["--cards"], gpu_expect=r"card \d")
        package = msgspec.structs.replace(build.package, version=f"{number}.0")
        version, _, variant = name.partition("-")
        named = {"version": version, "variant": variant}
        builds.append(msgspec.structs.replace(build, **named, package=package, verify=verify))
    return Recipe(engine="fake", builds=builds)


async def install(tmp_path: Path, recipe: Recipe, name: str = "", machine: Machine | None = None) -> str:
    index = Packages(tmp_path / "index")
    version, _, variant = name.partition("-")
    build = await install_build(
        "fake", engines_dir=tmp_path / "state", packages=index, recipe=recipe, version=version, variant=variant,
        machine=machine,
    )  # fmt: skip
    return build.name


def used(tmp_path: Path) -> str:
    build = find_build("fake", "", tmp_path / "state")
    return build.name if build else ""


async def test_what_was_installed_last_is_used_and_rollback_goes_back_and_forth(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path / "index", {"v-old": SERVER, "v-new": SERVER})
    await install(tmp_path, recipe, "v-old")
    await install(tmp_path, recipe, "v-new")
    assert used(tmp_path) == "v-new"

    assert (await roll_back("fake", tmp_path / "state")).name == used(tmp_path) == "v-old"
    assert (await roll_back("fake", tmp_path / "state")).name == used(tmp_path) == "v-new"


async def test_an_installation_that_names_nothing_leaves_a_rollback_alone(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path / "index", {"v-new": SERVER, "v-old": SERVER})
    await install(tmp_path, recipe, "v-old")
    await install(tmp_path, recipe)
    await roll_back("fake", tmp_path / "state")

    await install(tmp_path, recipe)
    assert used(tmp_path) == "v-old"
    await install(tmp_path, recipe, "v-new")
    assert used(tmp_path) == "v-new"


async def test_a_version_is_as_good_as_a_name(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path / "index", {"v-old": SERVER, "v-new": SERVER})

    assert await install(tmp_path, recipe, "v-new") == "v-new"


async def test_going_back_where_nothing_was_before_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BuildUnknown, match="no build of fake"):
        await roll_back("fake", tmp_path / "state")
    recipe = recipe_of(tmp_path / "index", {"v-one": SERVER, "v-two": SERVER})
    await install(tmp_path, recipe, "v-one")
    with pytest.raises(BuildUnknown, match="no previous build"):
        await roll_back("fake", tmp_path / "state")
    await install(tmp_path, recipe, "v-two")
    await remove_build("fake", "v-one", tmp_path / "state", ())
    with pytest.raises(BuildUnknown, match="no previous build"):
        await roll_back("fake", tmp_path / "state")


async def test_a_build_goes_wholly_unless_something_runs_on_it(tmp_path: Path) -> None:
    await install(tmp_path, recipe_of(tmp_path / "index", {"v-one": SERVER}))

    with pytest.raises(BuildInUse):
        await remove_build("fake", "v-one", tmp_path / "state", {"v-one"})
    await remove_build("fake", "v-one", tmp_path / "state", ())

    assert list_builds("fake", tmp_path / "state") == []
    assert {e.name for e in (tmp_path / "state/fake").iterdir()} <= {".lock", ".active.json"}
    with pytest.raises(BuildUnknown):
        await remove_build("fake", "v-one", tmp_path / "state", ())


@pytest.mark.parametrize("name", ["", "..", "../fake/v-one", ".active.json", ".lock", "a/b", "x\x00", "no-such"])
async def test_nothing_but_a_build_is_removed_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    await install(tmp_path, recipe_of(tmp_path / "index", {"v-one": SERVER}))

    with pytest.raises(BuildUnknown):
        await remove_build("fake", name, tmp_path / "state", ())

    assert used(tmp_path) == "v-one"


async def test_pruning_keeps_what_is_used_was_used_and_is_run(tmp_path: Path) -> None:
    names = ["v-a", "v-b", "v-c", "v-d", "v-e"]
    recipe = recipe_of(tmp_path / "index", dict.fromkeys(names, SERVER))
    for name in names:
        await install(tmp_path, recipe, name)
    state = tmp_path / "state"

    assert prunable_builds("fake", state, {"v-b"}) == ["v-a", "v-c"]
    assert await prune_builds("fake", state, {"v-b"}) == ["v-a", "v-c"]
    assert sorted(build.name for build in list_builds("fake", state)) == ["v-b", "v-d", "v-e"]
    assert (read_active(state / "fake").active, read_active(state / "fake").previous) == ("v-e", "v-d")
    assert await prune_builds("fake", state, {"v-b"}) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"active": 1}', '{"active": "../../etc"}', '{"active": "gone"}'])
async def test_damage_to_what_says_which_is_used_falls_back_to_what_is_there(text: str, tmp_path: Path) -> None:
    await install(tmp_path, recipe_of(tmp_path / "index", {"v-one": SERVER}))
    (tmp_path / "state/fake/.active.json").write_text(text)

    assert used(tmp_path) == "v-one"


CARD = (Gpu("NVIDIA H100", (9, 0)),)


def with_card() -> Machine:
    machine = read_machine()
    return Machine(machine.platform, machine.glibc, machine.cpu_features, gpus=CARD, driver=(580,), cuda=(13, 0))


def on_cards(recipe: Recipe) -> Recipe:
    builds = [msgspec.structs.replace(build, computes=("vulkan", "cpu")) for build in recipe.builds]
    return msgspec.structs.replace(recipe, builds=builds)


async def test_a_build_that_does_not_see_the_cards_is_turned_down_for_the_next_one(tmp_path: Path) -> None:
    recipe = on_cards(recipe_of(tmp_path / "index", {"v-blind": SERVER, "v-seeing": SEES_CARDS}))
    steps: list[Progress] = []

    build = await install_build(
        "fake", engines_dir=tmp_path / "state", packages=Packages(tmp_path / "index"), recipe=recipe,
        machine=with_card(), progress=steps.append,
    )  # fmt: skip

    assert build.name == "v-seeing"
    turned_down = [step.detail for step in steps if step.step == "turned-down"]
    assert len(turned_down) == 1 and "does not see the cards" in turned_down[0]
    assert [b.name for b in list_builds("fake", tmp_path / "state")] == ["v-seeing"]


async def test_without_cards_the_same_build_is_fine(tmp_path: Path) -> None:
    recipe = on_cards(recipe_of(tmp_path / "index", {"v-blind": SERVER}))

    assert await install(tmp_path, recipe) == "v-blind"


async def test_when_none_computes_every_reason_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    recipe = on_cards(recipe_of(tmp_path / "index", {"v-blind": SERVER}))

    with pytest.raises(BuildBroken, match="does not see the cards"):
        await install(tmp_path, recipe, machine=with_card())

    assert list_builds("fake", tmp_path / "state") == []
