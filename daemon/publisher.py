"""Versions of the route table: makes a new one when something changed, and hands it to every reader."""

import asyncio
import secrets
from collections.abc import AsyncGenerator

import msgspec

from core.api import RouteTable


class RoutePublisher:
    """The last table and who waits for the next. One per daemon life: its `epoch` marks it."""

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(8)
        self.version = 0
        self._changed = asyncio.Condition()
        self._table: RouteTable | None = None

    async def publish(self, table: RouteTable) -> None:
        """Make `table` the current one, under a new version, unless it says nothing new."""
        if self._table is not None and msgspec.structs.replace(table, version=self.version) == self._table:
            return
        async with self._changed:
            self.version += 1
            self._table = msgspec.structs.replace(table, version=self.version)
            self._changed.notify_all()

    async def tables(self) -> AsyncGenerator[RouteTable, None]:
        """The table now, and each newer one as it is made; a slow reader skips versions, never the last."""
        seen: RouteTable | None = None
        while True:
            async with self._changed:
                while self._table is seen:
                    await self._changed.wait()
                table = self._table
            seen = table
            if table is not None:
                yield table
