"""Runs pip so that it ends with us: `python -I run_pip.py PARENT_PID PIP_MAIN ARGUMENTS…`. A script, never imported.

A killed daemon or installer would otherwise leave a pip behind that goes on downloading into a folder which the next
call removes, and makes it anew. The kernel's parent-death signal ends it at once, whatever it is doing.
"""

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Ask the kernel, then become pip."""
    parent, pip = int(argv[1]), argv[2]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)  # the parent died before we could ask
    sys.argv = [pip, *argv[3:]]
    runpy.run_path(pip, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv)
