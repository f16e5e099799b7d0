"""Composition root of ComfyUI's gate: its parts, and which paths there are. What is not listed here does not exist."""

import asyncio

from falcon.asgi import App, Request, Response

from core.errors import ConfigError
from core.http.asgi import Receive, Scope, Send
from core.http.client import HttpClient
from core.http.pool import UpstreamPool
from core.log import EventLogger
from engines.gates.answers import write_json
from engines.gates.comfyui.catalog import NodeCatalog
from engines.gates.comfyui.desk import Desk
from engines.gates.comfyui.engine import ComfyEngine
from engines.gates.comfyui.events import PATH, Events
from engines.gates.comfyui.files import Files, Upload, View
from engines.gates.comfyui.jobs import JobState
from engines.gates.comfyui.prompts import Prompts, Workflows
from engines.gates.comfyui.shelf import Shelf
from engines.gates.comfyui.sockets import Sockets
from engines.gates.comfyui.work import History, Interrupt, ProgressRoute, QueueRoute
from engines.gates.door import HEALTH, Door
from engines.gates.generic import GateApp, add_answers
from engines.gates.health import Health, Models
from engines.gates.settings import GateSettings

API = "/api"
"""ComfyUI answers every path below it, too."""
_WEBSOCKETS = frozenset({PATH.encode(), f"{API}{PATH}".encode()})


class ComfyGate:
    """The application, and the task that follows ComfyUI's work."""

    def __init__(self, settings: GateSettings, http: HttpClient, pool: UpstreamPool, log: EventLogger) -> None:
        """Raises: ConfigError without a state directory, StorageError."""
        if settings.state is None or settings.base is None:
            raise ConfigError("the gate of ComfyUI needs a directory for its state (--state), and ComfyUI's (--base)")
        engine = ComfyEngine(http)
        nodes = NodeCatalog(engine, settings.nodes)
        sockets = Sockets()
        self._desk = desk = Desk(engine, settings.state, log, on_reconnect=nodes.forget, sockets=sockets)
        self._shelf = shelf = Shelf(settings.base, settings.allowance, desk, log)
        target = pool.target("engine", "127.0.0.1", settings.engine_port)
        history = History(desk)
        app: GateApp = App(middleware=[Door(settings.key, prefix=API)])
        add_answers(app)
        app.add_route(HEALTH, Health(http, settings.engine_health))
        app.add_route("/v1/models", Models(settings.models))
        app.add_route("/v1/workflows", Workflows(desk, nodes, shelf, log))
        app.add_route("/prompt", Prompts(desk, nodes, shelf))
        app.add_route("/progress/{name}", ProgressRoute(desk))
        app.add_route("/queue", QueueRoute(desk))
        app.add_route("/interrupt", Interrupt(desk))
        app.add_route("/history", history)
        app.add_route("/history/{name}", history, suffix="one")
        app.add_route("/view", View(desk, shelf, target))
        app.add_route("/upload/image", Upload(engine, shelf))
        app.add_route("/files", Files(shelf))
        app.add_route("/object_info", ObjectInfo(nodes))
        app.add_route("/object_info/{name}", ObjectInfo(nodes), suffix="one")
        app.add_route(PATH, Events(desk, sockets))
        app.add_route("/metrics", Metrics(desk, sockets))
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def takes_websocket(self, path: bytes) -> bool:
        """Asked by the server (`core.http.direct.WebSocketApp`)."""
        return path in _WEBSOCKETS

    async def run(self) -> None:
        """Follow the work, and keep the files within their limits, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._desk.run())
            group.create_task(self._shelf.run())


class ObjectInfo:
    """`GET /object_info` and `/object_info/{class}`: the classes that callers may use."""

    def __init__(self, nodes: NodeCatalog) -> None:
        self._nodes = nodes

    async def on_get(self, req: Request, resp: Response) -> None:
        write_json(resp, await self._nodes.shown())

    async def on_get_one(self, req: Request, resp: Response, name: str) -> None:
        shown = (await self._nodes.shown()).get(name)
        write_json(resp, {name: shown} if shown is not None else {})


class Metrics:
    """`GET /metrics`: what the daemon's watchdog reads."""

    def __init__(self, desk: Desk, sockets: Sockets) -> None:
        self._desk = desk
        self._sockets = sockets

    async def on_get(self, req: Request, resp: Response) -> None:
        opened = self._desk.open_jobs()
        running = sum(job.record.state is JobState.RUNNING for job in opened)
        lines = (
            "# TYPE llmgw_gate_prompts_running gauge",
            f"llmgw_gate_prompts_running {running}",
            "# TYPE llmgw_gate_prompts_waiting gauge",
            f"llmgw_gate_prompts_waiting {len(opened) - running}",
            "# TYPE llmgw_gate_steps_total counter",
            f"llmgw_gate_steps_total {self._desk.steps}",
            "# TYPE llmgw_gate_sockets gauge",
            f"llmgw_gate_sockets {len(self._sockets)}",
        )
        resp.content_type = "text/plain; version=0.0.4"
        resp.text = "\n".join(lines) + "\n"
