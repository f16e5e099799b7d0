"""The gate of an engine that only needs a key and a list of paths (`trtllm-serve`): management routes stay shut."""

import falcon
from falcon.asgi import App, Request, Response

from core.errors import LlmgwError
from core.http.client import HttpClient
from core.http.pool import UpstreamPool
from engines.gates.answers import answer_http_error, answer_llmgw_error
from engines.gates.door import HEALTH, Door
from engines.gates.health import Health, Models
from engines.gates.passing import Passage
from engines.gates.settings import GateSettings

GateApp = App[Request, Response]


def build_generic(settings: GateSettings, engine: HttpClient, pool: UpstreamPool) -> GateApp:
    """The ASGI application; `engine` is asked for health, `pool` relays."""
    target = pool.target("engine", "127.0.0.1", settings.engine_port)
    app: GateApp = App(middleware=[Door(settings.key)])
    add_answers(app)
    app.add_route(HEALTH, Health(engine, settings.engine_health))
    app.add_route("/v1/models", Models(settings.models))
    for path in settings.routes:
        app.add_route(path, Passage(target, path))
    return app


def add_answers(app: GateApp) -> None:
    """How the application says what went wrong."""
    app.resp_options.xml_error_serialization = False
    app.add_error_handler(LlmgwError, answer_llmgw_error)
    app.add_error_handler(falcon.HTTPError, answer_http_error)
