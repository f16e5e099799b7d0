"""Composition root of the gateway: builds every part and says which resource answers which path.

gunicorn calls `create_app()` once in each worker. Everything that a part needs is handed to it here; nothing is
found through globals.
"""

import os
import secrets
from collections.abc import Mapping

from falcon.asgi import App

from core.client import DaemonClient
from core.clock import SystemClock
from core.http.pool import UpstreamPool
from core.log import EventLogger, configure, get_logger
from core.paths import Layout
from gateway.activity import Reporter
from gateway.board import open_seat
from gateway.boundary import add_handlers
from gateway.choice import Choice
from gateway.ending import Endings
from gateway.fastlane import FalconApp, FastLane
from gateway.guard import Guard
from gateway.jobs.runner import JobsLifecycle, Runner
from gateway.jobs.store import JobStore
from gateway.key_limits import KeyLimiter
from gateway.lifecycle import Lifecycle
from gateway.loads import Loads
from gateway.metrics.counting import Counting
from gateway.metrics.moment import Moments
from gateway.relay import Dispatcher
from gateway.request_log import RequestLog
from gateway.routes.catalog import Catalog, Engines, Security
from gateway.routes.comfyui import PREFIX, ComfyUi
from gateway.routes.forms import Forms
from gateway.routes.health import Health, HealthReady
from gateway.routes.index import Index
from gateway.routes.inference import Inference
from gateway.routes.jobs import JobResult, Jobs, OneJob
from gateway.routes.messages import Messages
from gateway.routes.metrics import Metrics, MetricsView, Routing
from gateway.routes.models import Models, OneModel
from gateway.routes.node import Cluster, Doctor, Node, Status
from gateway.routes.openapi import OpenApi
from gateway.routes.responses import Responses
from gateway.routes.runtimes import KeepWarm, RuntimeAction, RuntimePlan, StopAll
from gateway.routes.usage import Usage
from gateway.routes.workflows import Workflows
from gateway.snapshot import SnapshotFile
from gateway.state import RouteState
from gateway.table import COUNT_TOKENS, FORM_PATHS, INFERENCE_PATHS, MESSAGES, RESPONSES, WORKFLOWS
from gateway.tracing.tracing import Tracing
from gateway.usage.account import Accountant
from gateway.usage.meter import Meter
from gateway.usage.reporter import UsageReporter
from gateway.usage.spool import Spool
from gateway.wake import Waker
from gateway.witness import LogWitness


def create_app(environ: Mapping[str, str] | None = None) -> FastLane:
    """The gateway's ASGI application. `LLMGW_STATE` chooses the layout, `LLMGW_LOG_LEVEL` what is logged."""
    environ = os.environ if environ is None else environ
    configure("gateway", environ.get("LLMGW_LOG_LEVEL", "info"))
    layout = Layout.from_environment(environ)
    log = get_logger("gateway")
    daemon = DaemonClient(layout.daemon_socket)
    pool = UpstreamPool()
    clock = SystemClock()
    seat = open_seat(environ)
    counting = Counting(seat)
    loads = Loads(clock, seat, LogWitness(log, counting))
    limiter = KeyLimiter(seat, clock)
    state = RouteState(daemon, SnapshotFile(layout.gateway_state), pool, loads, log)
    reporter = Reporter(daemon, state, loads, clock)
    waker = Waker(daemon)
    requests = RequestLog(log)
    source = f"{os.getpid()}-{secrets.token_hex(4)}"
    meter = Meter(source, clock)
    usage = UsageReporter(daemon, meter, Spool(layout.gateway_state), source, log)
    tracing = Tracing(state, log, counting.count_spans)
    endings = Endings(requests, meter, counting, of_marked=(limiter, tracing))
    dispatcher = Dispatcher(state, loads, endings, Accountant(), limiter, tracing)

    app: FalconApp = App(
        middleware=[Lifecycle(state, loads, (reporter, usage), tracing, daemon, pool, waker, requests, log)]
    )
    # Falcon would negotiate XML by the Accept header; our envelope is JSON for everybody.
    app.resp_options.xml_error_serialization = False
    add_handlers(app, log)
    guard = Guard(state, clock)
    choice = Choice(state, loads)
    kinds = {path: Workflows if path == WORKFLOWS else Inference for path in INFERENCE_PATHS}
    inference = tuple(kind(path, guard, choice, dispatcher, waker) for path, kind in kinds.items())
    app.add_route("/", Index())
    app.add_route("/openapi.json", OpenApi())
    app.add_route("/health", Health())
    app.add_route("/health/ready", HealthReady(state))
    app.add_route("/v1/models", Models(guard))
    app.add_route("/v1/models/{model_id:path}", OneModel(guard))
    for resource in inference:
        app.add_route(resource.path, resource)
    for path in (MESSAGES, COUNT_TOKENS):
        app.add_route(path, Messages(path, guard, choice, dispatcher, waker))
    for path in FORM_PATHS:
        app.add_route(path, Forms(path, guard, choice, dispatcher, waker))
    app.add_route(RESPONSES, Responses(RESPONSES, guard, choice, dispatcher, waker))
    _add_job_routes(app, guard, JobStore(layout.gateway_state / "jobs"), state, log)
    app.add_route(f"{PREFIX}/{{rest:path}}", ComfyUi(WORKFLOWS, guard, choice, dispatcher, waker))
    _add_number_routes(app, guard, daemon, Moments(state, loads, seat.board, clock), clock)
    _add_admin_routes(app, guard, daemon, state)
    return FastLane(app, inference, state, reporter, log)


def _add_job_routes(app: FalconApp, guard: Guard, store: JobStore, state: RouteState, log: EventLogger) -> None:
    runner = Runner(app, store, state, log)
    app.add_middleware(JobsLifecycle(runner, log))
    app.add_route("/v1/jobs", Jobs(guard, store, runner))
    app.add_route("/v1/jobs/{job_id}", OneJob(guard, store, runner))
    app.add_route("/v1/jobs/{job_id}/result", JobResult(guard, store, runner))


def _add_number_routes(
    app: FalconApp, guard: Guard, daemon: DaemonClient, moments: Moments, clock: SystemClock
) -> None:
    app.add_route("/metrics", Metrics(guard, daemon, moments))
    app.add_route("/gateway/metrics", MetricsView(guard, moments, clock))
    app.add_route("/gateway/routing", Routing(guard, moments))


def _add_admin_routes(app: FalconApp, guard: Guard, daemon: DaemonClient, state: RouteState) -> None:
    app.add_route("/gateway/security", Security(state))
    app.add_route("/gateway/node", Node(guard, daemon))
    app.add_route("/gateway/cluster", Cluster(guard, daemon))
    app.add_route("/gateway/usage", Usage(guard, daemon))
    app.add_route("/gateway/doctor", Doctor(guard, daemon))
    app.add_route("/gateway/status", Status(guard, daemon, state))
    app.add_route("/gateway/models", Catalog(guard))
    app.add_route("/gateway/engines", Engines(guard, daemon))
    app.add_route("/gateway/runtimes/plan", RuntimePlan(guard, daemon))
    app.add_route("/gateway/runtimes/stop-all", StopAll(guard, daemon))
    app.add_route("/gateway/runtimes/keep-warm", KeepWarm(guard, daemon))
    app.add_route("/gateway/runtimes/{runtime_id}/{action}", RuntimeAction(guard, daemon))
