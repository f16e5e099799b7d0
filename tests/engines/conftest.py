"""Genuine engines and models for the tests, installed once by our own installer into `build/test/`."""

import asyncio
import os
from pathlib import Path

import pytest

from core.process import ProcessFailed
from engines.adapter import Build
from engines.install import BuildBroken, install_build
from engines.plan import NoBuildFits
from engines.presets import resolve_preset
from engines.pypi import WheelMissing
from engines.weights import fetch
from tests.engines.comfyui_cpu import make_comfyui
from tests.engines.sglang_cpu import make_sglang
from tests.engines.tiny_folder import write_tiny_folder, write_tiny_lora
from tests.engines.tiny_model import write_tiny_model

_VLLM = "pypi-cpu"
_STATE = Path(os.environ.get("LLMGW_TEST_STATE") or Path(__file__).parents[2] / "build" / "test")


@pytest.fixture(scope="session")
def llamacpp() -> Build:
    """The build that this machine would get."""
    return asyncio.run(install_build("llamacpp", engines_dir=_STATE / "engines"))


@pytest.fixture(scope="session")
def starter_model() -> Path:
    """The model that `make up` serves."""
    return asyncio.run(fetch(resolve_preset("smollm2-135m").source, weights_dir=_STATE / "weights"))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 3 MB that says one sentence."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def vllm() -> Build:
    """vLLM for the processor, installed by its recipe: two minutes and 4 GB the first time."""
    try:
        return asyncio.run(install_build("vllm", engines_dir=_STATE / "engines", variant=_VLLM))
    except (NoBuildFits, BuildBroken, WheelMissing) as error:
        pytest.skip(f"vLLM for the CPU cannot be had here (pip needs PyTorch's CPU index): {error.message[:300]}")


@pytest.fixture(scope="session")
def sglang(vllm: Build) -> Build:
    """SGLang for the processor, beside vLLM: a minute and 1 GB the first time."""
    try:
        return asyncio.run(make_sglang(vllm, _STATE / "sglang"))
    except ProcessFailed as error:
        pytest.skip(f"SGLang cannot be had here: {str(error)[-300:]}")


@pytest.fixture(scope="session")
def comfyui(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """ComfyUI for the processor, installed by its recipe: a minute and 2 GB the first time."""
    archive = os.environ.get("LLMGW_TEST_COMFYUI", "")
    if not archive:
        pytest.skip("LLMGW_TEST_COMFYUI must name a source archive of ComfyUI, ComfyUI-VERSION.tar.gz")
    try:
        return asyncio.run(make_comfyui(Path(archive), _STATE / "engines", tmp_path_factory.mktemp("comfyui")))
    except WheelMissing as error:
        pytest.skip(f"ComfyUI's packages cannot be had (pip needs PyTorch's CPU index): {error.message[:300]}")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model as a folder of safetensors."""
    return write_tiny_folder(tmp_path_factory.mktemp("tiny") / "folder")


@pytest.fixture(scope="session")
def tiny_lora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter for it that changes its answer."""
    return write_tiny_lora(tmp_path_factory.mktemp("tiny") / "lora")
