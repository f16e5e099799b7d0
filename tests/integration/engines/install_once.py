"""A process that installs the fake engine and prints each step, to be killed at any of them.

python -m tests.integration.engines.install_once ENGINES_DIR MIRROR SHA256
"""

import asyncio
import sys
from pathlib import Path

from core.api import Progress
from core.errors import LlmgwError
from engines.install import install_build
from tests.integration.engines.wheels import make_recipe


def _report(event: Progress) -> None:
    print(event.step, flush=True)


async def main(engines_dir: str, mirror: str, sha256: str) -> None:
    build = await install_build(
        "fake", engines_dir=Path(engines_dir), mirror=mirror, progress=_report, recipe=make_recipe(sha256)
    )
    print("done", build.name, flush=True)


try:
    asyncio.run(main(*sys.argv[1:]))
except LlmgwError as error:
    print("error", error.code, error.message, flush=True)
    sys.exit(error.exit_code)
