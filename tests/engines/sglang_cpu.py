"""SGLang for a processor, which nobody publishes: its own wheel beside vLLM's environment, with stand-ins for kernels.

A dense model with torch's own attention calls none of `sgl_kernel`, which exists for cards and compilers only, and
nothing of torchvision but two operators' names. So: an environment that sees vLLM's packages (torch above all), the
genuine wheel of SGLang and what else it imports as the index stood on a day, and a `sgl_kernel` that breaks if called.
"""

import os
import sys
import sysconfig
from pathlib import Path

from core.process import run_process
from engines.adapter import Build
from engines.dated_index import PYPI, dated_index

VERSION = "0.5.23"
_DATE = "2026-10-31"
_INSTALL_S = 900.0
_PACKAGES = f"""sglang=={VERSION} orjson uvloop python-multipart IPython xxhash zstandard gguf interegular decorator
    stack_data traitlets matplotlib-inline prompt_toolkit pygments jedi parso pexpect ptyprocess executing asttokens
    pure_eval wcwidth modelscope blobfile lxml py-spy soundfile cffi pycparser nvidia-ml-py timm apache-tvm-ffi==0.1.11
    kernels openai-harmony==0.0.4 outlines==0.1.11 scipy datasets pandas pyarrow dill multiprocess easydict distro
    torchvision==0.28.0 torchaudio""".split()  # noqa: SIM905 - a list of words reads best as words

_KERNELS = '''"""Breaks when called: there is no build of it for a processor."""
__version__ = "0.4.10"


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*args, **named):
        raise NotImplementedError("sgl_kernel." + name)

    return missing
'''

_TYPES = '''class ScalarType:
    """A name is enough for the tables that SGLang makes when it is imported."""

    def __init__(self, name):
        self.name, self.id = name, hash(name) & 0xFFFF

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return 0


class _All:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return ScalarType(name)


scalar_types = _All()
'''

_OPERATORS = """import torch
_lib = torch.library.Library("torchvision", "FRAGMENT")
for _op in ("nms", "qnms"):
    _lib.define(_op + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


async def make_sglang(vllm: Build, folder: Path) -> Build:
    """The environment in `folder`, made unless it is there. Raises: ProcessFailed when pip cannot."""
    python, whole = folder / "bin/python", folder / ".whole"
    if not whole.exists():
        await run_process(
            [sys.executable, "-I", "-m", "venv", "--clear", "--without-pip", str(folder)], timeout_s=120.0
        )
        packages = folder / f"lib/python{sysconfig.get_python_version()}/site-packages"
        (theirs,) = vllm.executable.parents[1].glob("lib/python3.*/site-packages")
        (packages / "vllm.pth").write_text(f"{theirs}\n")
        async with dated_index(os.environ.get("PIP_INDEX_URL") or PYPI, _DATE) as index:
            await run_process(
                [*(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"),
                 *("--ignore-installed", "--only-binary=:all:", "--index-url", index, *_PACKAGES)],
                timeout_s=_INSTALL_S, env=dict(os.environ), limit_bytes=16 << 20,
            )  # fmt: skip
        _stand_in(packages)
        whole.touch()
    return Build("sglang", "cpu", VERSION, python)


def _stand_in(packages: Path) -> None:
    kernels = packages / "sgl_kernel"
    kernels.mkdir()
    (kernels / "__init__.py").write_text(_KERNELS + "\n\nfrom .scalar_type import ScalarType, scalar_types\n")
    (kernels / "scalar_type.py").write_text(_TYPES)
    for name in ("flash_attn", "quantization", "sparse_flash_attn"):
        (kernels / f"{name}.py").write_text(_KERNELS)
    # Made for CUDA: they cannot be loaded here, and their Python part does without.
    for library in (packages / "torchaudio" / "lib").glob("*.so"):
        library.unlink()
    operators = packages / "torchvision" / "_meta_registrations.py"
    operators.write_text(operators.read_text().replace("import torch\n", _OPERATORS, 1))
