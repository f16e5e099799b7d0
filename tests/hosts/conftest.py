"""Everything below tests/hosts boots hosts: it needs root and the tools that `make test` installs."""

import os
import shutil
from pathlib import Path

import pytest

from tests.hosts.harness import base_tree

_TOOLS = ("mmdebstrap", "unshare", "nsenter", "ip", "journalctl")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here, and say once why it cannot run where it cannot."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    reason = ""
    if os.geteuid() != 0:
        reason = "needs root for namespaces and cgroups: sudo make test"
    elif missing:
        reason = f"needs {', '.join(missing)}: `make test` as root installs them"
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.host)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def tree() -> Path:
    """The base tree; made on first use, which takes half a minute on a new machine."""
    return base_tree()
