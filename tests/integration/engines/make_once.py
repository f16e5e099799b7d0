"""A process that installs the fake engine, fetches or mends weights, and prints each step, to be killed at any of them.

python -m tests.integration.engines.make_once engine ENGINES_DIR MIRROR SHA256
python -m tests.integration.engines.make_once tree ENGINES_DIR MIRROR SHA256
python -m tests.integration.engines.make_once weights WEIGHTS_DIR MIRROR SOURCE
python -m tests.integration.engines.make_once mend WEIGHTS_DIR MIRROR HUB
"""

import asyncio
import sys
from pathlib import Path

from core.api import Progress
from core.errors import LlmgwError
from engines.hub import Hub
from engines.install import install_build
from engines.integrity import list_files, verify_files
from engines.mending import mend_file
from engines.origins import Origins
from engines.packages import Packages
from engines.stored import list_units
from engines.weights import fetch
from tests.integration.engines.trees import ARCHIVE, tree_recipe
from tests.integration.engines.wheels import make_recipe


def _report(event: Progress) -> None:
    print(event.step, flush=True)


async def main(what: str, into: str, mirror: str, of: str) -> None:
    packages = Packages(Path(mirror))
    if what in ("engine", "tree"):
        recipe = make_recipe(of) if what == "engine" else tree_recipe(of, f"{mirror}/{ARCHIVE}")
        build = await install_build("fake", engines_dir=Path(into), packages=packages, progress=_report, recipe=recipe)
        print("done", build.name, flush=True)
    elif what == "mend":
        files = list_files(list_units(Path(into)))
        found = await verify_files(files, _report)
        for file, one in zip(files, found, strict=True):
            print((await mend_file(file, one, Origins(packages, Hub(of)), _report)).state, flush=True)
    else:
        print("done", await fetch(of, weights_dir=Path(into), origins=Origins(packages), progress=_report), flush=True)


try:
    asyncio.run(main(*sys.argv[1:]))
except LlmgwError as error:
    print("error", error.code, error.message, flush=True)
    sys.exit(error.exit_code)
