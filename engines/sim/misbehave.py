"""How the simulated engine misbehaves as a process."""

import subprocess
import sys

_CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"


def hold_memory(size_mib: int) -> bytearray:
    """Memory that is really resident: every page is written."""
    ballast = bytearray(size_mib << 20)
    ballast[::4096] = b"\x01" * len(range(0, len(ballast), 4096))
    return ballast


class StrayChild:
    """A child in a session of its own that ignores SIGTERM, as vLLM's EngineCore lives on when its server is killed.

    `end` is what an orderly stop does; a killed parent leaves the child behind. It ends by itself after an hour.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # deliberately not core.process: it must not be owned
            [sys.executable, "-I", "-c", _CHILD],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
