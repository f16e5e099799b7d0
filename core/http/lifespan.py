"""The ASGI lifespan of an application: its startup before any traffic, its shutdown after the last."""

import asyncio

from core.errors import UnavailableError
from core.http.asgi import VERSIONS, AsgiApp, Message, Scope


class LifespanError(UnavailableError):
    """The application said that it cannot start."""

    code = "application_startup_failed"


class Lifespan:
    """Runs the application's lifespan as one task, from `startup` to `shutdown`.

    An application that knows no lifespan raises at once, as the specification allows, and is taken to be ready.
    """

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._task: asyncio.Task[None] | None = None
        self._events: asyncio.Queue[Message] = asyncio.Queue()
        self._answers: asyncio.Queue[Message] = asyncio.Queue()

    async def startup(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        answer = await self._ask("lifespan.startup")
        if answer is not None and answer["type"] == "lifespan.startup.failed":
            self._task = None
            raise LifespanError(str(answer.get("message", "")) or "the application's startup failed")

    async def shutdown(self) -> None:
        if self._task is not None and not self._task.done():
            await self._ask("lifespan.shutdown")
            await asyncio.wait({self._task})

    async def _ask(self, kind: str) -> Message | None:
        if self._task is None:
            return None
        self._events.put_nowait({"type": kind})
        answer = asyncio.ensure_future(self._answers.get())
        try:
            await asyncio.wait({answer, self._task}, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            answer.cancel()

    async def _run(self) -> None:
        scope: Scope = {"type": "lifespan", "asgi": VERSIONS, "state": {}}
        try:
            await self._app(scope, self._events.get, self._answers.put)
        except Exception:  # noqa: BLE001 - "if an exception is raised, the server must continue without lifespan"
            return
