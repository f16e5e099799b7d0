"""The two ways in which an application can relay, one on each of the event loops that there are, and both kinds of
upstream: ours, and one that is reached over TLS.
"""

import asyncio
from collections.abc import Iterator

import pytest
import uvloop

from tests.integration.http.harness import DirectlyRelayingApp, RelayingApp, way

_WAYS = {
    "asgi on asyncio": (RelayingApp, None, False),
    "direct on uvloop": (DirectlyRelayingApp, uvloop.EventLoopPolicy(), False),
    "over TLS on uvloop": (DirectlyRelayingApp, uvloop.EventLoopPolicy(), True),
}


@pytest.fixture(params=_WAYS.values(), ids=list(_WAYS))
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test with an application that waits for the relay, and with one that does not; with that, also over TLS."""
    way.app_type, policy, way.is_secure = request.param
    asyncio.set_event_loop_policy(policy)
    yield
    asyncio.set_event_loop_policy(None)
    way.app_type, way.is_secure = RelayingApp, False
