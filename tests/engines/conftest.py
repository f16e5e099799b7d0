"""Genuine engines and models for the tests, installed once by our own installer into `build/test/`."""

import asyncio
import os
from pathlib import Path

import pytest

from engines.adapter import Build
from engines.install import install_build
from engines.presets import resolve_preset
from engines.weights import fetch
from tests.engines.tiny_model import write_tiny_model

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
