"""The door in front of every resource: a request passes it first, or does not pass."""

from collections.abc import Iterable, Mapping

from falcon.asgi import Request

from core.clock import Clock
from gateway.auth import Access, decide, find_credential, has_expired
from gateway.client_address import find_address
from gateway.errors import admin_key_required, not_ready, remote_admin_disabled, system_stopped
from gateway.grant import Grant
from gateway.incoming import read_browser_facts, read_headers
from gateway.origin import check_origin
from gateway.state import Routes, RouteState


class Guard:
    """Authenticates against the current routes."""

    def __init__(self, state: RouteState, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    def admit(self, access: Access, fields: Mapping[bytes, bytes], peer: str) -> tuple[Routes, Grant]:
        """The routes to serve this request with, and what its key grants. Raises: ApiError."""
        routes = self._state.routes
        if routes is None:
            raise not_ready()
        credential = find_credential(fields.get(b"authorization", b""), fields.get(b"x-api-key", b""))
        return routes, decide(access, credential, peer, routes.lookup.access, self._clock)

    def admit_work(self, fields: Mapping[bytes, bytes], peer: str) -> tuple[Routes, Grant]:
        """`admit` for what an engine is to do: also refused while the node does not serve."""
        routes, grant = self.admit(Access.INFERENCE, fields, peer)
        if not routes.lookup.table.serving:
            raise system_stopped()
        return routes, grant

    def still_holds(self, routes: Routes, grant: Grant) -> bool:
        """Whether a request may be judged as one before it with the same head: nothing has changed since."""
        return routes is self._state.routes and not (grant.expires_s and has_expired(grant, self._clock))

    def address_of(self, client: object, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Whose request it is, by a trusted proxy's word where one is in between (`gateway.client_address`)."""
        peer = _peer_of(client)
        routes = self._state.routes
        if routes is None or not routes.lookup.proxies:
            return peer
        return find_address(peer, headers, routes.lookup.proxies)

    def admit_request(self, access: Access, req: Request) -> Routes:
        """`admit` for resources that need nothing else of the headers."""
        headers = req.scope["headers"]
        routes, _ = self.admit(access, read_headers(headers), self.address_of(req.scope.get("client"), headers))
        if access is Access.ADMIN:
            check_origin(read_browser_facts(headers), loopback=routes.lookup.access.loopback)
        return routes

    def admit_write(self, req: Request) -> Routes:
        """`admit_request` for what changes this node: off loopback only where the config says so, with an admin key.

        Asked after the key: a stranger learns nothing of the config.
        """
        routes = self.admit_request(Access.ADMIN, req)
        access = routes.lookup.access
        if not access.loopback:
            if not routes.lookup.table.security.allow_remote_admin:
                raise remote_admin_disabled()
            if not access.has_admin_keys:
                raise admin_key_required()
        return routes

    def admit_reader(self, req: Request) -> tuple[Routes, Grant]:
        """`admit` for who asks what there is to use. Raises: ApiError."""
        headers = req.scope["headers"]
        return self.admit(Access.INFERENCE, read_headers(headers), self.address_of(req.scope.get("client"), headers))


def _peer_of(client: object) -> str:
    """The other end's address, from an ASGI scope's `client`; empty on a unix socket."""
    return str(client[0]) if isinstance(client, (tuple, list)) and client else ""
