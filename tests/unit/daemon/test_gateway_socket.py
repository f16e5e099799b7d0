"""The drop-in that moves the gateway's socket."""

import pytest

from core.config.schema import Server
from daemon.gateway_socket import drop_in


@pytest.mark.parametrize(
    ("server", "listens"),
    [
        (Server(), None),
        (Server(port=9000), "127.0.0.1:9000"),
        (Server(host="localhost", port=9000), "127.0.0.1:9000"),
        (Server(host="0.0.0.0"), "0.0.0.0:8100"),
        (Server(host="::1"), "[::1]:8100"),
        (Server(host="[::]"), "[::]:8100"),
    ],
)
def test_where_the_socket_listens(server: Server, listens: str | None) -> None:
    text = drop_in(server)
    if listens is None:
        assert text is None
    else:
        assert text is not None and f"ListenStream=\nListenStream={listens}\n" in text
