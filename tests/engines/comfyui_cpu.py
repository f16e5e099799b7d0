"""ComfyUI for a processor from the operator's archive, as its recipe makes it, where PyTorch's own index may be away.

The recipe asks for PyTorch's wheels for the processor. torch itself is found by pip's configuration; of torchvision and
torchaudio the package index has those for CUDA alone, which do not load beside it. So they are packed anew, without
what was compiled and with the names of two operators that the Python part wants to see.
"""

import hashlib
import os
import shutil
import sys
import zipfile
from pathlib import Path
from unittest.mock import patch

from core.process import ProcessFailed, run_process
from engines.adapter import Build
from engines.digests import give_digests
from engines.install import install_build
from engines.mirror import Mirror
from engines.pypi import WheelMissing
from engines.recipe import load_recipe

_WHEELS = ("torchvision==0.28.0", "torchaudio==2.11.0")
_DOWNLOAD_S = 600.0
_OPERATORS = b"""import torch
_lib = torch.library.Library("torchvision", "FRAGMENT")
for _op in ("nms", "qnms"):
    _lib.define(_op + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


async def make_comfyui(archive: Path, engines: Path, scratch: Path) -> Build:
    """The build, made unless it is there. Raises: WheelMissing."""
    mirror = scratch / "mirror"
    (mirror / "archives").mkdir(parents=True)
    shutil.copy(archive, mirror / "archives" / archive.name)
    digests = {archive.name: hashlib.sha256(archive.read_bytes()).hexdigest()}
    recipe = give_digests(load_recipe("comfyui"), digests, Mirror(str(mirror), "offline.mirror"))
    version = archive.name.removeprefix("ComfyUI-").removesuffix(".tar.gz")
    (scratch / "wheels").mkdir()
    if not (engines / "comfyui" / f"{version}-cpu").exists():
        await _stand_in(scratch)
    places = f"{os.environ.get('PIP_FIND_LINKS', '')} {scratch / 'wheels'}".strip()
    with patch.dict(os.environ, {"PIP_FIND_LINKS": places}):  # what an operator's pip is told where PyTorch's index is
        return await install_build("comfyui", engines_dir=engines, recipe=recipe, version=version, variant="cpu")


async def _stand_in(scratch: Path) -> None:
    words = ("download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(scratch / "cuda"), *_WHEELS)
    try:
        await run_process([sys.executable, "-m", "pip", *words], timeout_s=_DOWNLOAD_S, env=dict(os.environ))
    except ProcessFailed as error:
        raise WheelMissing(str(error)[-300:]) from error
    for wheel in (scratch / "cuda").glob("*.whl"):
        _pack_anew(wheel, scratch / "wheels")


def _pack_anew(wheel: Path, into: Path) -> None:
    name, version, tags = wheel.name.split("-", 2)
    before, after = f"{name}-{version}.dist-info/", f"{name}-{version}+cpu.dist-info/"
    with (
        zipfile.ZipFile(wheel) as theirs,
        zipfile.ZipFile(into / f"{name}-{version}+cpu-{tags}", "w", zipfile.ZIP_DEFLATED) as ours,
    ):
        for member in theirs.namelist():
            data = theirs.read(member)
            if member.endswith((".so", "/RECORD")):
                continue
            if member.endswith(".dist-info/METADATA"):
                data = data.replace(f"Version: {version}\n".encode(), f"Version: {version}+cpu\n".encode(), 1)
            if member == "torchvision/_meta_registrations.py":
                data = data.replace(b"import torch\n", _OPERATORS, 1)
            ours.writestr(member.replace(before, after), data)
        names = [*ours.namelist(), f"{after}RECORD"]
        ours.writestr(f"{after}RECORD", "".join(f"{member},,\n" for member in names))
