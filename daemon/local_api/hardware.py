"""`/v1/hardware`, `/v1/hardware/clear`, `/v1/doctor`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import falcon
import falcon.asgi
import msgspec

from core.errors import UsageError
from core.hardware import ClearRequest, DoctorReport
from daemon.hardware.sampler import Sampler
from daemon.local_api.access import Role

_MAX_BODY_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Looking:
    """What knows this machine."""

    sampler: Sampler
    examine: Callable[[], Awaitable[DoctorReport]]
    """Reads everything now and runs every check."""


class Hardware:
    """What is known; with `fresh=1`, what is read now."""

    role = Role.GATEWAY

    def __init__(self, looking: Looking) -> None:
        self._sampler = looking.sampler

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        fresh = req.get_param_as_bool("fresh", default=False)
        state = await self._sampler.refresh() if fresh else self._sampler.state()
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(state)


class HardwareClear:
    """Forget past events of a card, so that models are placed on it again."""

    role = Role.ADMIN

    def __init__(self, looking: Looking) -> None:
        self._sampler = looking.sampler

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        try:
            request = msgspec.json.decode(await req.stream.read(_MAX_BODY_BYTES), type=ClearRequest)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise UsageError(f"the request's body is not understood: {error}") from error
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(self._sampler.clear(request.card))


class Doctor:
    """Look at everything now, and say what is wrong and how to mend it."""

    role = Role.GATEWAY

    def __init__(self, looking: Looking) -> None:
        self._examine = looking.examine

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(await self._examine())
