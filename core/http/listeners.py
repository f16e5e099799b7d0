"""The sockets on which a worker accepts connections, over TLS or not; that can change while it serves.

Whoever listens anew does it on a second descriptor of the same socket before the first one is closed: the queue of
connections is the socket's, and none of them is lost. Connections that are there stay what they are.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence

from core.http.tcp import configure_listener
from core.http.tls import HANDSHAKE_TIMEOUT_S


class Listeners:
    """One worker's. `sockets` are bound; they are this object's from now on."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        factory: Callable[[], asyncio.Protocol],
        sockets: Sequence[socket.socket],
        backlog: int,
    ) -> None:
        self._loop = loop
        self._factory = factory
        self._sockets = list(sockets)
        self._backlog = backlog
        self._servers: list[asyncio.AbstractServer] = []
        self._tls: ssl.SSLContext | None = None

    async def open(self, tls: ssl.SSLContext | None) -> None:
        """Begin to listen."""
        self._tls = tls
        for sock in self._sockets:
            configure_listener(sock)
            self._servers.append(await self._listen(sock, tls))

    async def secure(self, tls: ssl.SSLContext | None) -> None:
        """Connections that come from now on are secured like this. Raises: OSError, and then nothing has changed."""
        fresh: list[tuple[int, socket.socket, asyncio.AbstractServer]] = []
        try:
            for index, sock in enumerate(self._sockets):
                if sock.family != socket.AF_UNIX:
                    again = sock.dup()
                    fresh.append((index, again, await self._listen(again, tls)))
        except OSError:
            for _, _, server in fresh:
                server.close()
            raise
        self._tls = tls
        for index, again, server in fresh:
            self._servers[index].close()
            self._sockets[index], self._servers[index] = again, server

    async def close(self) -> None:
        """Stop listening, and lose none of the connections that wait to be accepted.

        At a reload others would accept them, too; but at the end of a service that holds its socket itself, the last
        one that closes it would reset all that are in its queue.
        """
        kept = [sock.dup() for sock in self._sockets]
        for server in self._servers:
            server.close()
        await asyncio.sleep(0)  # the loop has let go of the sockets when it turned once
        for sock in kept:
            for connection in _accept_all(sock):
                tls = self._tls if connection.family != socket.AF_UNIX else None
                await self._loop.connect_accepted_socket(self._factory, connection, ssl=tls)

    async def _listen(self, sock: socket.socket, tls: ssl.SSLContext | None) -> asyncio.AbstractServer:
        # The loop calls listen() again, with a backlog of 100 unless it is told otherwise.
        if sock.family == socket.AF_UNIX:
            return await self._loop.create_unix_server(self._factory, sock=sock, backlog=self._backlog)
        handshake_s = HANDSHAKE_TIMEOUT_S if tls is not None else None
        return await self._loop.create_server(
            self._factory, sock=sock, backlog=self._backlog, ssl=tls, ssl_handshake_timeout=handshake_s
        )


def _accept_all(sock: socket.socket) -> list[socket.socket]:
    """Take what waits in the queue, and close it before the next one can come."""
    accepted: list[socket.socket] = []
    with sock:
        sock.setblocking(False)
        try:
            while True:
                accepted.append(sock.accept()[0])
        except OSError:  # BlockingIOError: there are no more; another: there will be none
            return accepted
