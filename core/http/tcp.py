"""How we set TCP sockets: what is written goes out, and an other end that has vanished is noticed.

A peer that loses power says nothing. Keep-alive probes find it while nothing is being sent, the user timeout while
something is. Linux hands a listener's options on to what it accepts, so a connection costs no calls of its own.
"""

import socket

_TCP_ESTABLISHED = 1


def configure_listener(sock: socket.socket) -> None:
    """For connections from clients: a vanished one holds an engine for 90 s at most."""
    if sock.family != socket.AF_UNIX:
        _configure(sock, idle_s=60, probe_s=10, probes=3, unacknowledged_s=90)


def configure_upstream(sock: socket.socket, receive_buffer_bytes: int) -> None:
    """Before connecting: the window scale, and with it the buffer's bound, is settled by the handshake."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    _configure(sock, idle_s=15, probe_s=5, probes=3, unacknowledged_s=30)


def has_left(sock: socket.socket) -> bool:
    """Whether the other end has closed or reset, for a connection that is not being read."""
    if sock.family == socket.AF_UNIX:
        return False
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _TCP_ESTABLISHED


def _configure(sock: socket.socket, *, idle_s: int, probe_s: int, probes: int, unacknowledged_s: int) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_NODELAY, 1),
        (socket.TCP_KEEPIDLE, idle_s),
        (socket.TCP_KEEPINTVL, probe_s),
        (socket.TCP_KEEPCNT, probes),
        (socket.TCP_USER_TIMEOUT, unacknowledged_s * 1000),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
