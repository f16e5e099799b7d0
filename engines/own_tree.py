"""Programs of ours that run as units (the simulated engine, gates): which interpreter and which tree. Pure.

They are run by the interpreter and from the tree that runs us.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python_path() -> str:
    """Our tree, and whatever below it (bundled libraries) this process imports from."""
    root = str(ROOT)
    bundled = [entry for entry in sys.path if entry.startswith(root + "/") and Path(entry).name != "bin"]
    return ":".join(dict.fromkeys([root, *bundled]))
