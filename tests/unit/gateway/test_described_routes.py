"""Every route of the gateway is in the table behind `/openapi.json`, and nothing else is."""

import re
from pathlib import Path

from falcon.inspect import inspect_routes

from gateway.app import create_app
from gateway.openapi.operations import OPERATIONS

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def routes_of(state: Path) -> set[tuple[str, str]]:
    """Method and path of every route, as the application has them; HEAD goes with GET."""
    app = create_app({"LLMGW_STATE": str(state)}).app
    return {
        (method.method, re.sub(r":\w+\}", "}", route.path))
        for route in inspect_routes(app)
        for method in route.methods
        if not method.internal and method.method in METHODS
    }


def test_every_route_is_described_and_nothing_else(tmp_path: Path) -> None:
    """A new route wants its row in `gateway/openapi/operations.py`."""
    assert {(operation.method, operation.path) for operation in OPERATIONS} == routes_of(tmp_path)
