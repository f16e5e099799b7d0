"""The two ways in which an application can relay."""

from collections.abc import Iterator

import pytest

from tests.integration.http.harness import DirectlyRelayingApp, RelayingApp, way


@pytest.fixture(params=[RelayingApp, DirectlyRelayingApp], ids=["asgi", "direct"])
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test with an application that waits for the relay, and with one that does not."""
    way.app_type = request.param
    yield
    way.app_type = RelayingApp
