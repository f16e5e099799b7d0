"""A process that installs the fake engine or fetches weights and prints each step, to be killed at any of them.

python -m tests.integration.engines.make_once engine ENGINES_DIR MIRROR SHA256
python -m tests.integration.engines.make_once weights WEIGHTS_DIR MIRROR SOURCE
"""

import asyncio
import sys
from pathlib import Path

from core.api import Progress
from core.errors import LlmgwError
from engines.install import install_build
from engines.weights import fetch
from tests.integration.engines.wheels import make_recipe


def _report(event: Progress) -> None:
    print(event.step, flush=True)


async def main(what: str, into: str, mirror: str, of: str) -> None:
    if what == "engine":
        recipe = make_recipe(of)
        build = await install_build("fake", engines_dir=Path(into), mirror=mirror, progress=_report, recipe=recipe)
        print("done", build.name, flush=True)
    else:
        print("done", await fetch(of, weights_dir=Path(into), mirror=mirror, progress=_report), flush=True)


try:
    asyncio.run(main(*sys.argv[1:]))
except LlmgwError as error:
    print("error", error.code, error.message, flush=True)
    sys.exit(error.exit_code)
