"""Opening one connection to an upstream: its name, its addresses in turn, and TLS. The caller owns the deadline.

Names are looked up anew for each connection, since services move, and never on the loop: of several connections that
need the same name at once one looks it up. Authorities are read from their files once, and again when those changed.
"""

import asyncio
import ipaddress
import os
import socket
import ssl
from functools import lru_cache

from core.http.limits import PoolLimits
from core.http.reach import Reach
from core.http.tcp import configure_upstream

_SHUTDOWN_S = 5.0
"""How long a connection that is given up waits for the other end's farewell."""

Place = tuple[socket.AddressFamily, tuple[str, int]]


class Untrusted(OSError):
    """The other end is not who it should be, or does not speak TLS. Its text is the reason, in words."""


class Dialer:
    """What the connections of one loop share. `close` it at the end."""

    def __init__(self, limits: PoolLimits) -> None:
        self._limits = limits
        self._looking: dict[str, asyncio.Task[list[Place]]] = {}
        self._contexts: dict[str, tuple[object, ssl.SSLContext]] = {}

    async def open(self, protocol: asyncio.Protocol, host: str, port: int, reach: Reach, within_s: float) -> None:
        """Give the protocol its connection. Each of several addresses gets its share of the time that is left.

        Raises: OSError, TimeoutError included.
        """
        family = _family_of(host)
        if family is not None and not reach.tls:  # most are: nothing to look up, nothing to read
            async with asyncio.timeout(within_s):
                return await self._open_at(protocol, family, (host, port), host, None)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        async with asyncio.timeout_at(until_s):
            context = await self._context(reach.ca_file) if reach.tls else None
            places = await self._places(host, port)
        failure: OSError = OSError("the name has no address")
        for number, (family, address) in enumerate(places):
            share_s = (until_s - loop.time()) / (len(places) - number)
            try:
                async with asyncio.timeout(share_s):
                    return await self._open_at(protocol, family, address, host, context)
            except Untrusted:
                raise
            except OSError as error:
                failure = error
        raise failure

    async def close(self) -> None:
        """Look nothing up any more."""
        looking = list(self._looking.values())
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)

    async def _open_at(
        self,
        protocol: asyncio.Protocol,
        family: socket.AddressFamily,
        address: tuple[str, int],
        host: str,
        context: ssl.SSLContext | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            configure_upstream(sock, self._limits.receive_buffer_bytes)
            await loop.sock_connect(sock, address)
            if context is None:
                await loop.create_connection(lambda: protocol, sock=sock)
            else:
                await loop.create_connection(
                    lambda: protocol, sock=sock, ssl=context, server_hostname=host, ssl_shutdown_timeout=_SHUTDOWN_S
                )
        except ssl.SSLError as error:
            sock.close()
            raise Untrusted(_explain(error)) from error
        except BaseException:
            sock.close()
            raise

    async def _places(self, host: str, port: int) -> list[Place]:
        family = _family_of(host)
        if family is not None:
            return [(family, (host, port))]
        return [(family, (address, port)) for family, (address, _) in await self._look_up(host)]

    async def _look_up(self, host: str) -> list[Place]:
        task = self._looking.get(host)
        if task is None:
            task = self._looking[host] = asyncio.get_running_loop().create_task(_resolve(host))
            task.add_done_callback(lambda done: self._looked_up(host, done))
        # Shielded: who gives up must not end the others' search.
        return await asyncio.shield(task)

    def _looked_up(self, host: str, task: asyncio.Task[list[Place]]) -> None:
        del self._looking[host]
        if not task.cancelled():
            task.exception()  # whoever still waits is told; if nobody does, nobody minds

    async def _context(self, ca_file: str) -> ssl.SSLContext:
        """Raises: OSError."""
        version = _version_of(ca_file)
        known = self._contexts.get(ca_file)
        if known is None or known[0] != version:
            # In a thread: the system's authorities are hundreds.
            known = self._contexts[ca_file] = version, await asyncio.to_thread(load_trust, ca_file)
        return known[1]


@lru_cache(maxsize=1024)
def _family_of(host: str) -> socket.AddressFamily | None:
    """Of an address; None: it is a name."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return None
    return socket.AF_INET6 if version == 6 else socket.AF_INET


def load_trust(ca_file: str) -> ssl.SSLContext:
    """TLS 1.2 and later, HTTP/1.1, certificate and name verified. Raises: Untrusted."""
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = "holds no certificate" if isinstance(error, ssl.SSLError) else str(error)
        raise Untrusted(f"{ca_file or 'the authorities of the system'}: {_plain(error, reason)}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def explain_failure(error: OSError) -> str:
    """Why there is no connection, in words."""
    return error.strerror or str(error) or type(error).__name__


async def _resolve(host: str) -> list[Place]:
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [(family, (str(address[0]), 0)) for family, _, _, _, address in found]


def _version_of(ca_file: str) -> object:
    """What changes when the file does. The system's file is where OpenSSL looks for it."""
    path = ca_file or ssl.get_default_verify_paths().cafile
    try:
        stat = os.stat(path) if path else None
    except OSError:
        stat = None
    return None if stat is None else (stat.st_ino, stat.st_mtime_ns, stat.st_size)


def _explain(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message.rstrip('.')}"
    return f"no TLS with it: {(error.reason or str(error)).replace('_', ' ').lower()}"


def _plain(error: Exception, otherwise: str) -> str:
    return error.strerror if isinstance(error, FileNotFoundError | PermissionError) and error.strerror else otherwise
