"""The door in front of every resource: a request passes it first, or does not pass."""

from falcon.asgi import Request

from gateway.auth import Access, decide, find_credential
from gateway.errors import not_ready
from gateway.incoming import Incoming
from gateway.origin import check_origin
from gateway.state import Routes, RouteState


class Guard:
    """Authenticates against the current routes."""

    def __init__(self, state: RouteState) -> None:
        self._state = state

    def admit(self, access: Access, incoming: Incoming) -> tuple[Routes, str]:
        """The routes to serve this request with, and the name of its key. Raises: ApiError."""
        routes = self._state.routes
        if routes is None:
            raise not_ready()
        policy = routes.lookup.access
        if access is Access.ADMIN:
            check_origin(incoming.browser_facts(), loopback=policy.loopback)
        credential = find_credential(incoming.get(b"authorization"), incoming.get(b"x-api-key"))
        return routes, decide(access, credential, incoming.peer, policy)

    def admit_request(self, access: Access, req: Request) -> Routes:
        """`admit` for resources that need nothing else of the headers."""
        return self.admit(access, Incoming(req.scope))[0]
