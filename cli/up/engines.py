"""Stopping every engine when a person stops `llmgw up`: asks the embedded supervisor, which does it and ends."""

import asyncio

from core.paths import Layout
from units.embedded.protocol import CONTROL_SOCKET, Operation, Request, encode_line

_CONNECT_S = 2.0
_STOP_S = 40.0
"""Longer than the longest TimeoutStopSec of a unit of ours."""


async def stop_engines(layout: Layout) -> bool:
    """Have all units stopped and the supervisor end. Returns False when it cannot be asked."""
    socket = layout.supervisor_state / CONTROL_SOCKET
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_unix_connection(str(socket))
    except (OSError, TimeoutError):
        return False
    try:
        async with asyncio.timeout(_STOP_S):
            writer.write(encode_line(Request(id=1, op=Operation.SHUTDOWN)))
            await writer.drain()
            return bool(await reader.readline())
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()
