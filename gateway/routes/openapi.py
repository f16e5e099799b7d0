"""`GET /openapi.json`: what can be asked here, for programs. Public: it is the same on every node."""

import falcon
import msgspec
from falcon.asgi import Request, Response

from core import VERSION
from gateway.openapi.document import build_document
from gateway.openapi.operations import OPERATIONS


class OpenApi:
    """The document, made once."""

    def __init__(self) -> None:
        self._data = msgspec.json.encode(build_document(OPERATIONS, VERSION))

    async def on_get(self, req: Request, resp: Response) -> None:
        resp.content_type = falcon.MEDIA_JSON
        resp.data = self._data

    on_head = on_get
