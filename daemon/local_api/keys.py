"""`/v1/keys` and `/v1/keys/revoke`: clients' keys. Once an answer is sent, the gateway has been told, too."""

import falcon
import falcon.asgi
import msgspec

from core.keys import CreateKeyRequest, KeyInfo, KeyList, RevokedKey, RevokeKeyRequest
from core.message import Message
from daemon.keys import config_keys
from daemon.local_api.access import Role
from daemon.local_api.body import read_body
from daemon.node import Node


class _Keys:
    role = Role.ADMIN

    def __init__(self, node: Node) -> None:
        self._node = node

    def _in_config(self) -> list[KeyInfo]:
        return [info for info, _ in config_keys(self._node.config_use.loaded.config.security)]


class Keys(_Keys):
    """All keys, without their hashes; and making one."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        _answer(resp, KeyList(keys=[*self._in_config(), *self._node.keys.list_keys()]))

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        request = await read_body(req, CreateKeyRequest)
        created = self._node.keys.create(request)
        if not request.dry:
            await self._node.publish()
        _answer(resp, created)


class KeysRevoke(_Keys):
    """Take one away, for good."""

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        request = await read_body(req, RevokeKeyRequest)
        revoked = self._node.keys.revoke(request.key, self._in_config(), apply=request.apply)
        if request.apply:
            await self._node.publish()
        _answer(resp, RevokedKey(key=revoked))


def _answer(resp: falcon.asgi.Response, message: Message) -> None:
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(message)
