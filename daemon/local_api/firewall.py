"""`/v1/firewall`."""

import falcon
import falcon.asgi
import msgspec

from daemon.firewall import Firewall
from daemon.local_api.access import Role


class FirewallResource:
    """How the firewall stands; with `fresh=1`, after looking at the table (and mending it) now."""

    role = Role.GATEWAY

    def __init__(self, firewall: Firewall) -> None:
        self._firewall = firewall

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        fresh = req.get_param_as_bool("fresh", default=False)
        state = await self._firewall.look() if fresh else self._firewall.state(with_table=True)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(state)
