"""Which build a machine takes; the machines are a table."""

import pytest

from core.errors import BugError, NotFoundError
from engines.machine import Machine, parse_cpu_features, parse_glibc, read_machine
from engines.plan import NoBuildFits, plan_build, select_builds
from engines.recipe import Recipe, load_recipe, parse_recipe

_AVX2 = frozenset({"avx2", "fma", "f16c", "bmi2", "sse4_2"})


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (Machine("linux-x86_64", (2, 36), _AVX2), ""),
        (Machine("linux-x86_64", (2, 35), _AVX2 | {"avx512f"}), ""),
        (Machine("linux-x86_64", (3, 0), _AVX2), ""),
        (Machine("linux-x86_64", (2, 31), _AVX2), "needs glibc 2.35, this has 2.31"),
        (Machine("linux-x86_64", (2, 4), _AVX2), "needs glibc 2.35, this has 2.4"),
        (Machine("linux-x86_64", (0, 0), _AVX2), "needs glibc 2.35, this has none"),
        (Machine("linux-x86_64", (2, 36), frozenset({"sse4_2"})), "needs a processor with avx2, fma, f16c, bmi2"),
        (Machine("linux-x86_64", (2, 36), _AVX2 - {"fma"}), "needs a processor with fma"),
        (Machine("linux-x86_64", (2, 36), frozenset()), "needs a processor with avx2"),
        (
            Machine("linux-aarch64", (2, 39), frozenset()),
            "b10068-pypi-vulkan: is for linux-x86_64, this is linux-aarch64",
        ),
        (Machine("darwin-arm64", (0, 0), frozenset()), "is for linux-x86_64, this is darwin-arm64"),
    ],
)
def test_a_build_is_taken_only_where_it_runs_and_the_reason_is_said(machine: Machine, reason: str) -> None:
    plan = plan_build(load_recipe("llamacpp"), machine)

    if not reason:
        assert plan.require().name == "b10068-pypi-vulkan"
        return
    assert plan.chosen is None
    with pytest.raises(NoBuildFits) as caught:
        plan.require()
    assert reason in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("version", "variant", "names"),
    [
        ("b10068", "", ["b10068-pypi-vulkan"]),
        ("", "pypi-vulkan", ["b10068-pypi-vulkan"]),
        ("b10068", "pypi-vulkan", ["b10068-pypi-vulkan"]),
        ("b11434", "cpu", ["b11434-cpu"]),
    ],
)
def test_version_and_variant_name_a_build_together_or_alone(version: str, variant: str, names: list[str]) -> None:
    assert [build.name for build in select_builds(load_recipe("llamacpp"), version, variant).builds] == names


def test_a_version_or_a_variant_alone_keeps_the_order_of_the_recipe_and_nothing_named_keeps_all() -> None:
    recipe = load_recipe("vllm")

    assert select_builds(recipe) == recipe
    of_version = select_builds(recipe, version="0.32.0")
    assert [build.name for build in of_version.builds] == ["0.32.0-cu129", "0.32.0-pypi-cpu"]
    machine = Machine("linux-x86_64", (2, 36), _AVX2, python=(3, 11))
    assert plan_build(of_version, machine).require().variant == "pypi-cpu"


@pytest.mark.parametrize(
    ("version", "variant", "code", "message", "hint"),
    [
        ("b9", "", "engine_version_unknown", "no digest of llamacpp 'b9' is known", "b11434, b10068"),
        ("b9", "cpu", "engine_version_unknown", "no digest of llamacpp 'b9' is known", "b11434, b10068"),
        ("b10068-pypi-vulkan", "", "engine_version_unknown", "no digest", "b10068"),
        ("", "cuda-14", "engine_variant_unknown", "no variant 'cuda-14' of llamacpp", "cuda-13.4, cuda-12.8"),
        ("b10068", "cpu", "engine_variant_unknown", "no variant 'cpu' of llamacpp b10068", "there is pypi-vulkan:"),
    ],
)
def test_one_that_no_recipe_knows_is_refused_with_what_there_is(
    version: str, variant: str, code: str, message: str, hint: str
) -> None:
    with pytest.raises(NotFoundError) as caught:
        select_builds(load_recipe("llamacpp"), version, variant)

    assert caught.value.code == code and message in caught.value.message and hint in caught.value.hint


def test_a_build_is_called_by_version_and_variant_and_only_once() -> None:
    recipe = load_recipe("sglang")

    assert [build.name for build in recipe.builds] == ["0.5.23-pypi-cu130", "0.5.19-cu129"]
    with pytest.raises(ValueError, match="one name"):
        Recipe(engine="sglang", builds=[recipe.builds[0], recipe.builds[0]])


@pytest.mark.parametrize("engine", ["", "sim", "../llamacpp", "llamacpp.toml", "a/b", "x\x00"])
def test_an_engine_without_a_recipe_is_not_found(engine: str) -> None:
    with pytest.raises(NotFoundError):
        load_recipe(engine)


def test_this_machine_can_be_read() -> None:
    machine = read_machine()

    assert machine.platform.startswith("linux-")
    assert machine.cpu_features


@pytest.mark.parametrize(
    ("text", "version"),
    [("glibc 2.36", (2, 36)), ("glibc 2.36.1", (2, 36)), ("musl 1.2", (0, 0)), ("", (0, 0)), ("glibc x.y", (0, 0))],
)
def test_the_c_library_is_read(text: str, version: tuple[int, int]) -> None:
    assert parse_glibc(text) == version


def test_only_what_all_processors_have_counts() -> None:
    hybrid = "processor : 0\nflags : avx2 fma amx\n\nprocessor : 1\nflags\t\t: fma avx2\n"

    assert parse_cpu_features(hybrid) == {"avx2", "fma"}
    assert parse_cpu_features("Features : asimd sve\n") == {"asimd", "sve"}
    assert parse_cpu_features("garbage\n\x00") == frozenset()


@pytest.mark.parametrize(
    "text", ["", "engine = 1", "engine = 'x'\nbuilds = [{}]", "x = ", "engine='x'\nbuilds=[]\ny=1"]
)
def test_a_broken_recipe_is_a_bug_and_says_where(text: str) -> None:
    with pytest.raises(BugError, match="recipe is broken"):
        parse_recipe(text)
