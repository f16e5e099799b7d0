"""Runs a test's body in a network namespace of its own: real nftables, and nobody else's tables in reach.

A namespace belongs to a thread here: the body's thread leaves the machine's, and so do the threads that it starts.
"""

import asyncio
import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Awaitable, Callable

import pytest

_CLONE_NEWNET = 0x40000000
_BODY_S = 120.0

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace: sudo make test")


def in_own_network(body: Callable[[], Awaitable[None]]) -> None:
    """Run `body` on a loop in a thread that is in a new, empty network namespace; its failure is the caller's."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(_CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "unshare")
            asyncio.run(_bounded(body))
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread, which raises it
            failures.append(error)

    thread = threading.Thread(target=work, name="own-network")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


async def _bounded(body: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(_BODY_S):
        await body()


def nft(*argv: str, script: str = "") -> str:
    """The operator's own `nft`, in the namespace of the thread that calls."""
    done = subprocess.run(["nft", *argv], input=script, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def talk_to_oneself() -> None:
    """Two packets over loopback."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=30)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as speaker:
        speaker.sendto(b"one", ("127.0.0.1", 9))
        speaker.sendto(b"two", ("127.0.0.1", 9))
