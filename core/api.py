"""Wire messages of the daemon's local socket (`/run/llmgw/daemon.sock`, HTTP/1.1, JSON).

    GET  /v1/state                         -> NodeState
    GET  /v1/routes                        -> one RouteTable per line, now and after every change, until closed
    POST /v1/runtimes/{id}/start           StartRequest -> RuntimeStatus
    POST /v1/runtimes/{id}/stop            -> RuntimeStatus
    POST /v1/runtimes/{id}/adapter         AdapterRequest -> AdapterReply, once the engine has it
    POST /v1/runtimes/{id}/restart         -> RuntimeStatus
    GET  /v1/runtimes/{id}/logs?lines&follow  -> text lines
    POST /v1/reload                        -> ReloadResult
    POST /v1/engines/{engine}/install      -> Progress lines; the last has `done` or `error`
    POST /v1/weights/fetch                 WeightsRequest -> Progress lines; the last has `done` (path) or `error`
    POST /v1/weights/verify                see core.weights
    GET  /v1/hardware[?fresh=1]            -> core.hardware.HardwareState
    POST /v1/hardware/clear                ClearRequest -> ClearResult
    GET  /v1/doctor                        -> DoctorReport
    POST /v1/usage, GET /v1/usage          see core.usage
    GET  /v1/firewall[?fresh=1]            -> core.firewall.FirewallState
    GET  /v1/keys, POST /v1/keys[/revoke]  -> core.keys
    errors                                 -> ErrorReply with the status of the error's kind

camelCase on the wire. Readers ignore fields they do not know, so that versions can mix. The socket's peer is
identified by the kernel (SO_PEERCRED); root and members of `llmgw-admin` may change everything, the
gateway's user may read, and may start and stop what the config names.
"""

from core.cluster import ClusterState
from core.firewall import FirewallState
from core.hardware import HardwareState
from core.message import Message
from core.weights import VerifiedWeights


class ErrorBody(Message, frozen=True, kw_only=True):
    code: str
    message: str
    hint: str = ""


class ErrorReply(Message, frozen=True, kw_only=True):
    error: ErrorBody


class GateStatus(Message, frozen=True, kw_only=True):
    """The gate that stands before a runtime's engine."""

    unit: str
    state: str
    """Of the unit, in the service manager's words; `unknown: …` when it cannot be asked."""
    port: int = 0
    """Where the gate listens: the runtime's port."""
    engine_port: int = 0
    """Where the engine listens, on loopback and for the gate alone."""


class KvEventsStatus(Message, frozen=True, kw_only=True):
    """Where a runtime's engine tells of its prefix cache: addresses of ZeroMQ, in a directory that root may enter."""

    endpoint: str
    """It publishes there."""
    replay: str = ""
    """It sends there again what it has published, from the sequence number that it is asked for on."""


class RuntimeStatus(Message, frozen=True, kw_only=True):
    """One runtime as the node sees it now."""

    id: str
    state: str
    """A `core.runtime.RuntimeState`."""
    reason: str = ""
    since: str = ""
    """When the state began; RFC 3339, UTC."""
    engine: str = ""
    build: str = ""
    models: list[str] = []
    unit: str = ""
    port: int = 0
    pid: int = 0
    restarts: int = 0
    keep_warm: bool = False
    hold: bool = False
    """An operator stopped it; only an operator starts it again."""
    on: str = ""
    """What it computes on: `cpu`, or the GPUs."""
    memory_mib: int | None = None
    max_concurrency: int = 1
    active_requests: int = 0
    """At the engine, over all gateway workers."""
    queued_requests: int = 0
    """Waiting for a slot, or for the runtime to start."""
    adapters: list[str] = []
    """LoRA adapters that its engine holds now, of those that are loaded when they are needed."""
    adapter_failures: dict[str, str] = {}
    """Adapters that its engine did not take when they were last needed, and why."""
    gate: GateStatus | None = None
    """None: its engine has none, or it is not up."""
    kv_events: KvEventsStatus | None = None
    """None: its engine tells nobody what its cache holds, or it is not up."""
    log: list[str] = []
    """The engine's last lines, when it failed."""


class BackendStatus(Message, frozen=True, kw_only=True):
    """One backend as the gateway's workers have found it, all together."""

    id: str
    state: str
    """`ready`, `resting` (it is full), `out` (it failed, and is asked again in a while), `disabled`, or `failed`: it
    cannot be used."""
    reason: str = ""
    base_url: str = ""
    has_key: bool = False
    key_from: str = ""
    """The variable that the key comes from; empty: it stands in the config, or there is none."""
    models: list[str] = []
    max_concurrency: int | None = None
    active_requests: int = 0
    queued_requests: int = 0
    last_error: str = ""
    """Why the last request that failed there did; it may have answered since."""
    last_error_at: str = ""
    """RFC 3339, UTC."""


class ConfigStatus(Message, frozen=True, kw_only=True):
    path: str
    loaded_at: str = ""
    error: str = ""
    """Why the file on disk is not the one in use; empty when it is."""
    warnings: list[str] = []
    """What stands in it and has no effect, each with its path."""


class NodeState(Message, frozen=True, kw_only=True):
    """What `llmgw status` shows and `GET /gateway/node` builds on."""

    node: str
    version: str
    pid: int
    started_at: str
    service_manager: str
    config: ConfigStatus
    server_host: str
    server_port: int
    server_tls: bool = False
    gateway_complaints: list[str] = []
    """Why the gateway does not serve as the config says, by its processes."""
    runtimes: list[RuntimeStatus] = []
    backends: list[BackendStatus] = []
    memory_total_mib: int | None = None
    memory_available_mib: int | None = None
    cpu_count: int | None = None
    hardware: HardwareState | None = None
    """Null while nothing was read yet."""
    firewall: FirewallState | None = None
    cluster: ClusterState | None = None
    """Null from a daemon that knows of none."""


UNLIMITED = 1 << 16
"""More requests at once than any node has under way."""


class RouteTarget(Message, frozen=True, kw_only=True):
    """Where requests for a model can go."""

    id: str
    runtime: str = ""
    """The runtime that serves it; empty: it is a backend."""
    backend: str = ""
    """The backend that it is: somebody else's service, of whom it is told only what is asked."""
    name: str = ""
    """What it is called in lists; empty: as the runtime or the backend."""
    host: str
    port: int
    tls: bool = False
    ca_file: str = ""
    """Authorities that may vouch for it over TLS; empty: the system's."""
    base_path: str = "/v1"
    """What stands there in the place of our paths' `/v1`."""
    ready: bool
    state: str = ""
    reason: str = ""
    hold: bool = False
    """An operator stopped the runtime: the gateway says so and asks for no start."""
    key_file: str = ""
    """File with the key that the target demands; the gateway's group may read it."""
    upstream_model: str = ""
    """The target's own name for the model; empty when it is the id that clients use."""
    adapter: str = ""
    """The LoRA adapter that the model is, as its engine calls it, where that is loaded when it is needed."""
    adapter_loaded: bool = False
    """Whether requests for it may be sent there now; while they may, it stays loaded."""
    routes: list[str] = []
    usage_when_asked: bool = False
    """Its streams say what they cost only to who asks for it (`stream_options.include_usage`); it knows the field."""
    max_concurrency: int = 1
    """`UNLIMITED`: as many as come."""
    max_queued_requests: int | None = None
    """Requests that may wait for a slot; null: four for each slot, at least eight."""
    queue_timeout_ms: int = 240_000
    """How long one may wait; 0: for ever."""
    queue_retry_after_seconds: int = 2
    first_byte_timeout_ms: int = 0
    """How long an answer may take to begin; then another target is asked. 0: as long as it takes."""
    between_bytes_timeout_ms: int = 0
    """How long it may pause."""
    interactive_reserved_slots: int = 0
    request_startup_wait_ms: int = 1000
    """How long a request waits for the runtime to be loaded."""
    tells_callers_apart: bool = False
    """The target must be told for whom a request is (`core/caller.py`)."""
    weight: int = 1

    @property
    def is_usable(self) -> bool:
        """Whether a request for this very model can be sent there now."""
        return self.ready and (self.adapter_loaded or not self.adapter)


class RouteModel(Message, frozen=True, kw_only=True):
    id: str
    kind: str = "chat"
    parent: str = ""
    """The model that this one is an adapter for."""
    advertise: bool = True
    aliases: list[str] = []
    context_window: int | None = None
    targets: list[RouteTarget] = []


class ApiKey(Message, frozen=True, kw_only=True, omit_defaults=True):
    """A client's key, as a hash."""

    sha256: str
    """Lower-case hex of the key's UTF-8 bytes."""
    scope: str = "inference"
    """`inference` or `admin` (which includes inference)."""
    name: str = ""
    made: bool = False
    """`llmgw key create` made it. One of the config's for inference also administers where there is no admin key."""
    models: list[str] = []
    """Ids, or patterns with `*` and `?`; none: every model."""
    expires_s: float = 0.0
    """Seconds since the Unix epoch; 0: never."""
    requests_per_minute: int = 0
    """0: no limit; likewise the following two."""
    tokens_per_minute: int = 0
    concurrency: int = 0


class SecurityPolicy(Message, frozen=True, kw_only=True):
    bind_host: str = "127.0.0.1"
    allow_missing_auth: bool = True
    """Whether requests without a key are served; only ever on a loopback bind."""
    allow_remote_admin: bool = False
    allow_non_loopback_bind: bool = False
    only_admin_keys: bool = False
    """Administration by an administrator's key only, also where none is listed: the daemon cannot read its keys."""


class JobPolicy(Message, frozen=True, kw_only=True):
    """What jobs may take of this node."""

    keep_minutes: int = 1440
    wait_minutes: int = 1440
    max_per_key: int = 64
    max_store_mb: int = 1024


class ServerPolicy(Message, frozen=True, kw_only=True):
    """How the gateway meets its clients."""

    tls_cert_file: str = ""
    """Empty: plain HTTP."""
    tls_key_file: str = ""
    trusted_proxies: list[str] = []
    """Networks, addresses, and `unix`."""
    cors_origins: list[str] = []
    """Origins of web pages, or `*`."""


class TracingPolicy(Message, frozen=True, kw_only=True):
    """Where the gateway sends traces."""

    endpoint: str = ""
    """The whole URL that spans are posted to; empty: there are none."""
    headers_file: str = ""
    """JSON: what a request to it carries; the gateway's group may read it. Empty: nothing."""
    headers_sha256: str = ""
    """Of that file, so that a change of it is one of the table."""
    sample_ratio: float = 1.0
    service_name: str = "llmgw"


class RouteTable(Message, frozen=True, kw_only=True):
    """A versioned snapshot of everything the gateway needs to serve."""

    version: int
    epoch: str
    """Changes when the daemon starts: versions are compared within one epoch only."""
    node: str
    models: list[RouteModel] = []
    serving: bool = True
    """False: an operator freed this node, and every inference request is turned away."""
    keys: list[ApiKey] = []
    security: SecurityPolicy = SecurityPolicy()
    jobs: JobPolicy = JobPolicy()
    server: ServerPolicy = ServerPolicy()
    tracing: TracingPolicy = TracingPolicy()


class StartRequest(Message, frozen=True, kw_only=True):
    wait: bool = True
    """Answer when it runs or failed; else as soon as the start is under way."""
    reason: str = "operator"


class AdapterRequest(Message, frozen=True, kw_only=True):
    """A request needs this adapter. Who leaves before the answer wants it no longer."""

    adapter: str
    """As in `RouteTarget.adapter`."""


class AdapterReply(Message, frozen=True, kw_only=True):
    """It is loaded, and the route table says so."""

    runtime: str
    adapter: str


class WeightsRequest(Message, frozen=True, kw_only=True):
    source: str


class ReloadResult(Message, frozen=True, kw_only=True):
    changed: bool
    restarted: list[str] = []
    started: list[str] = []
    stopped: list[str] = []


class Progress(Message, frozen=True, kw_only=True):
    """One line of a long operation."""

    step: str
    detail: str = ""
    done_bytes: int | None = None
    total_bytes: int | None = None
    done: str = ""
    """Set on the last line of a success: what was made (a build's name, a path)."""
    error: ErrorBody | None = None
    """Set on the last line of a failure."""
    verified: VerifiedWeights | None = None
    """Set on the line before the last of a look at weights."""
