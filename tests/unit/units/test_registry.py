"""Which service manager: by layout, by name, with one clear error."""

import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import ConfigError
from core.paths import Layout
from units.registry import choose_backend, load_backend


def test_a_state_directory_of_its_own_has_a_supervisor_of_its_own(tmp_path: Path) -> None:
    assert choose_backend(Layout.under(tmp_path)) == "embedded"


async def test_a_back_end_is_loaded_by_its_name(tmp_path: Path) -> None:
    # The other one needs GLib; the contract suite loads it where it works.
    assert load_backend("embedded", Layout.under(tmp_path)).name == "embedded"


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_backend("upstart", Layout.under(tmp_path))
    assert refused.value.hint == "one of: systemd, embedded"


def test_the_registry_and_the_embedded_back_end_need_no_glib() -> None:
    program = (
        "import sys; sys.modules['gi'] = sys.modules['pydbus'] = None\n"
        "from pathlib import Path\nfrom core.paths import Layout\nfrom units.registry import *\n"
        "async def main():\n"
        "    load_backend('embedded', Layout.under(Path('/tmp/x')))\n"
        "    try: load_backend('systemd', Layout.system())\n"
        "    except BackendUnavailable as error: print(error.code, error.hint)\n"
        "import asyncio; asyncio.run(main())"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "service_manager_unavailable apt-get install python3-gi python3-pydbus\n"
