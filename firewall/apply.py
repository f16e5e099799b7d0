"""Reads and changes our table through libnftables. The one file that imports it; one thread of its own calls it.

Every change is first checked by the library and the kernel (`nft -c`), then made in one transaction: all of it or
nothing. libnftables keeps one context, which must not be used by two threads.
"""

import asyncio
import ctypes
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import nftables

from core.errors import TimedOutError
from firewall.kernel import FirewallNotPermitted, FirewallRefused, FirewallUnavailable
from firewall.ruleset import FAMILY, TABLE, Command, Object

T = TypeVar("T")

_LIBRARY = "libnftables.so.1"
_CALL_S = 10.0
"""A table of ours takes milliseconds; but another program's transaction can hold the kernel's lock."""


class NftKernel:
    """The kernel of this network namespace."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nftables")
        self._library: nftables.Nftables | None = None

    async def read(self) -> list[Object] | None:
        return await self._call(self._read)

    async def apply(self, commands: Sequence[Command]) -> None:
        await self._call(lambda: self._apply(commands))

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(_CALL_S):
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except TimeoutError:
            raise TimedOutError(
                f"nftables did not answer in {_CALL_S:.0f} s", hint="another program may hold its lock: nft list tables"
            ) from None

    def _read(self) -> list[Object] | None:
        code, output, error = self._open().cmd(f"list table {FAMILY} {TABLE}")
        if code == 0:
            return _objects(output)
        if "No such file or directory" in error:
            return None
        raise _failure(error)

    def _apply(self, commands: Sequence[Command]) -> None:
        library, batch = self._open(), {"nftables": list(commands)}
        library.set_dry_run(True)
        try:
            code, _, error = library.json_cmd(batch)
        finally:
            library.set_dry_run(False)
        if code == 0:
            code, _, error = library.json_cmd(batch)
        if code != 0:
            raise _failure(error)

    def _open(self) -> nftables.Nftables:
        """The library's context, made at its first use. Raises: FirewallUnavailable."""
        if self._library is None:
            try:
                # Before the wrapper tries: when its own attempt fails, it complains on stderr as it is collected.
                ctypes.CDLL(_LIBRARY)
                self._library = nftables.Nftables(_LIBRARY)
            except OSError as error:
                raise FirewallUnavailable(
                    f"nftables cannot be used: {error}", hint="apt-get install libnftables1 nftables"
                ) from error
            self._library.set_json_output(True)
        return self._library


def _objects(output: str) -> list[Object]:
    try:
        objects = json.loads(output)["nftables"]
    except (ValueError, KeyError, TypeError) as error:
        raise FirewallUnavailable(f"nftables' answer is not understood: {error!r}") from error
    return [item for item in objects if isinstance(item, dict) and "metainfo" not in item]


def _failure(error: str) -> FirewallUnavailable | FirewallNotPermitted | FirewallRefused:
    """libnftables tells by text alone."""
    said = " ".join(error.split())[:500] or "no reason given"
    if "Operation not permitted" in error:
        return FirewallNotPermitted("nftables may not be used by this process: it needs CAP_NET_ADMIN")
    if "cache initialization failed" in error or "not supported" in error:
        return FirewallUnavailable(f"this kernel has no usable nftables: {said}")
    return FirewallRefused(f"nftables refused the rules: {said}")
