"""The config file's sections as types. Keys on disk are camelCase; unknown keys and bad values are errors.

Only shapes and ranges stand here. References between sections are checked in `core/config/check.py`, `${VAR}` is
replaced in `expand.py`, and `load.py` puts it together. Names, defaults and units follow the reference in
`docs/man/llmgw-config.5.md`.
"""

from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from core.config.backend import AbsolutePath, Backend, ModelTarget
from core.config.cluster import Cluster
from core.config.section import GiB, Name, NonNegative, Port, Positive, Section


class Tls(Section, frozen=True, kw_only=True):
    """A certificate for the gateway's port; PEM files, absolute paths."""

    cert_file: str = ""
    """With its chain; empty: plain HTTP."""
    key_file: str = ""

    @property
    def is_on(self) -> bool:
        return bool(self.cert_file)


class Server(Section, frozen=True, kw_only=True):
    """Where clients reach the gateway."""

    host: str = "127.0.0.1"
    port: Port = 8100
    workers: Annotated[int, Meta(ge=0, le=64)] = 0
    """Gateway processes; 0: one per two cores, at most four."""
    tls: Tls = Tls()
    trusted_proxies: list[str] = []
    """Addresses and networks whose X-Forwarded-For is believed; `unix`: who connects by a unix socket."""
    cors_origins: list[str] = []
    """Origins of web pages that may use `/v1/*`, or `*`."""


class Security(Section, frozen=True, kw_only=True):
    """Who may ask."""

    allow_missing_auth: bool = True
    allow_remote_admin: bool = False
    allow_non_loopback_bind: bool = False
    allow_wildcard_cors: bool = False
    """The same as `server.corsOrigins: ["*"]`."""
    api_keys: list[str] = []
    admin_api_keys: list[str] = []


class Model(Section, frozen=True, kw_only=True):
    """What clients can ask for. It has a runtime, or a backend, or targets."""

    id: Name
    name: str = ""
    kind: Literal["chat", "embedding", "image", "video"] = "chat"
    runtime: str = ""
    backend: str = ""
    targets: list[ModelTarget] = []
    adapter: str = ""
    """A LoRA adapter's weights: the model is the runtime's own with them on top; empty: it is the runtime's own."""
    upstream_model: str = ""
    advertise: bool = True
    context_window: Positive | None = None

    def places(self) -> list[ModelTarget]:
        """Where it is served, however that was written, each under its own name for the model."""
        written = self.targets or [ModelTarget(runtime=self.runtime, backend=self.backend)]
        return [replace(place, upstream_model=place.upstream_model or self.upstream_model) for place in written]

    def runtimes(self) -> list[str]:
        """The runtimes among them."""
        return [place.runtime for place in self.places() if place.runtime]


class Watchdog(Section, frozen=True, kw_only=True):
    """What happens to an engine that has requests and moves nothing; applies live."""

    enabled: bool = True
    action: Literal["restart", "observe"] = "restart"
    """`observe` only tells."""
    eject_after_ms: Annotated[int, Meta(ge=10_000)] = 20_000
    """Out of rotation after so long without a byte or a token. Less would be decided on one look at the engine."""
    min_no_progress_ms: Annotated[int, Meta(ge=10_000)] = 120_000
    """Restarted after so long."""
    failure_threshold: Positive = 3
    """Or after so many times that all clients of a stalled engine gave up …"""
    failure_window_ms: Positive = 600_000
    """… within this time."""
    cooldown_ms: NonNegative = 600_000
    """No second restart within this time."""


class Warmup(Section, frozen=True, kw_only=True):
    """One request of the operator's own that warms an engine up."""

    path: Annotated[str, Meta(pattern="^/")]
    body: dict[str, object] = {}


class Runtime(Section, frozen=True, kw_only=True):
    """One engine to serve on this node."""

    enabled: bool = True
    engine: str = "command"
    build: str = ""
    """A build's name; empty: the best that this machine can run."""
    weights: str = ""
    """A path or a source (`package:…`)."""
    command: list[str] = []
    args: list[str] = []
    env: dict[str, str] = {}
    port: Port | None = None
    """None: one of `ports.backends`."""
    health_url: str = ""
    startup_timeout_ms: Positive | None = None
    """None: 5 minutes and 20 seconds per GiB of weights."""
    context_length: NonNegative = 0
    max_concurrency: Annotated[int, Meta(ge=1, le=4096)] = 1
    max_queued_requests: NonNegative | None = None
    """Requests that may wait for a slot; None: four for each slot, at least eight."""
    queue_timeout_ms: NonNegative = 240_000
    """How long one may wait; 0: for ever."""
    queue_retry_after_seconds: Positive = 2
    first_byte_timeout_ms: NonNegative = 0
    """How long an engine may be silent before its answer begins; 0: as long as it takes."""
    between_bytes_timeout_ms: NonNegative = 0
    """And within its answer."""
    interactive_reserved_slots: NonNegative = 0
    """Of the slots, for requests of the class `interactive` only."""
    request_startup_wait_ms: NonNegative = 1000
    """How long a request waits for the runtime to be loaded; the load goes on."""
    max_loaded_adapters: Annotated[int, Meta(ge=1, le=256)] = 4
    """How many adapters of `models[].adapter` its engine holds at once; others are loaded in their turn."""
    memory_gb: GiB | None = None
    """A hard limit for the unit and the estimate for admission."""
    gpus: Annotated[int, Meta(ge=0, le=64)] | list[str] | None = None
    """How many cards it computes on, or which (uuids or indices); None: one where there is any and the engine can."""
    gpu_memory_gb: GiB | None = None
    """What it takes of the cards' memory, all together."""
    keep_warm: bool = False
    """Pinned: started by itself, never evicted, started again after a crash."""
    preferred_warm: bool = False
    """Started by itself when there is room; evicted after all others."""
    priority: Annotated[int, Meta(ge=0, le=1000)] = 100
    """Among runtimes that were used alike, the lower one is evicted first."""
    idle_stop_ms: NonNegative = 0
    """Stop after so long without a request; 0: never."""
    options: dict[str, str | int | float | bool] = {}
    """Settings of the engine's adapter."""
    watchdog: Watchdog = Watchdog()
    warmup: bool | Warmup = False
    """Answer one request before clients are let in: a single token, or what is given."""


class MemorySafety(Section, frozen=True, kw_only=True):
    """What keeps a load from taking the whole machine down."""

    mode: Literal["enforce", "off"] = "enforce"
    min_available_memory_gb: GiB | None = None
    """A load is ended when less is available; None: the smaller of 1 GiB and 5 % of the machine's memory."""
    poll_interval_ms: Annotated[int, Meta(ge=50, le=10_000)] = 250


class RuntimePolicy(Section, frozen=True, kw_only=True):
    """How the memory of this node is shared; admission is always on."""

    memory_budget_gb: GiB | None = None
    """What all runtimes together may use of the host's memory."""
    max_memory_utilization: Annotated[float, Meta(gt=0, lt=1)] | None = None
    """The same as a share of the whole."""
    reserve_memory_gb: GiB = 8.0
    """The same as what must stay free; at most a quarter of the machine."""
    admission_wait_ms: NonNegative = 120_000
    """How long a request for a model waits for others to become idle."""
    min_residency_ms: NonNegative = 30_000
    """A runtime is not evicted before it has run for so long, so that two models do not thrash."""
    preferred_warm_idle_ms: NonNegative = 30_000
    """A preferred runtime displaces others only when they were idle for so long."""
    drain_timeout_ms: NonNegative = 300_000
    """How long a stop waits for requests under way."""
    memory_safety: MemorySafety = MemorySafety()


Digests = dict[str, Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]]
"""Archive that a build is made of -> its SHA-256; nothing is installed from one that is not named."""


class OwnProgram(Section, frozen=True, kw_only=True):
    """An operator's own build of an engine, used as it is by runtimes that name no build."""

    bin: AbsolutePath = ""
    digests: Digests = {}
    """Of a release's archives."""
    mirror: str = ""
    """A mirror for this engine's builds alone; likewise the following."""

    @property
    def is_given(self) -> bool:
        return bool(self.bin)


class OwnPython(Section, frozen=True, kw_only=True):
    """The same for an engine that is a Python package."""

    python: AbsolutePath = ""
    """Of the environment that has it."""
    mirror: str = ""

    @property
    def is_given(self) -> bool:
        return bool(self.python)


class OwnTree(Section, frozen=True, kw_only=True):
    """The same for an engine that is a source tree."""

    dir: AbsolutePath = ""
    python: AbsolutePath = ""
    """Of the environment that has what it requires."""
    digests: Digests = {}
    """Of source archives."""
    mirror: str = ""

    @property
    def is_given(self) -> bool:
        return bool(self.dir or self.python)


OwnBuild = OwnProgram | OwnPython | OwnTree


class Engines(Section, frozen=True, kw_only=True):
    """Where engines come from and how they run."""

    user: str = "llmgw-engine"
    """System user of every engine, where the daemon is root."""
    mirror: str = ""
    """A directory or an index URL that replaces the package index; for machines without internet."""
    llamacpp: OwnProgram = OwnProgram()
    vllm: OwnPython = OwnPython()
    sglang: OwnPython = OwnPython()
    trtllm: OwnPython = OwnPython()
    comfyui: OwnTree = OwnTree()

    def own_build(self, engine: str) -> OwnBuild | None:
        """The operator's own, where one is given."""
        own = getattr(self, engine, None)
        return own if isinstance(own, OwnBuild) and own.is_given else None


class Offline(Section, frozen=True, kw_only=True):
    """For machines without internet."""

    mirror: str = ""
    """A tree that everything comes from, laid out as `engines/mirror.py` says: a directory, or the URL of a folder."""


class Ports(Section, frozen=True, kw_only=True):
    """Ranges that we hand out; outside the kernel's ephemeral range."""

    backends: tuple[Port, Port] = (8201, 8299)


class Paths(Section, frozen=True, kw_only=True):
    """Where large things lie; empty: below the state directory."""

    engines: str = ""
    weights: str = ""


class Hardware(Section, frozen=True, kw_only=True):
    """How this machine is looked at."""

    nvidia_smi: str = "nvidia-smi"
    """A name in PATH or an absolute path."""
    nvidia_smi_timeout_ms: Annotated[int, Meta(ge=100, le=120_000)] = 10_000
    sample_interval_ms: Annotated[int, Meta(ge=500, le=600_000)] = 5000
    ib_root: str = "/sys/class/infiniband"
    kernel_log: str = ""
    """A file of kernel messages; empty: the journal, or /dev/kmsg where there is none."""
    fabrics: dict[str, list[str]] = {}
    """Names of fabrics and the InfiniBand adapters on each."""


class Firewall(Section, frozen=True, kw_only=True):
    """Who reaches this machine's ports; one nftables table of ours."""

    enabled: bool = True
    networks: list[str] = []
    """Addresses and networks that reach engines' ports; loopback always does."""
    clients: list[str] = []
    """Addresses and networks that reach the gateway's port; empty: all."""


class Jobs(Section, frozen=True, kw_only=True):
    """Requests that are answered with an id and wait for their turn (`/v1/jobs`)."""

    keep_minutes: Annotated[int, Meta(ge=1, le=525_600)] = 1440
    """How long a finished job and its result are kept."""
    wait_minutes: Annotated[int, Meta(ge=1, le=525_600)] = 1440
    """How long one may wait for its turn."""
    max_per_key: Annotated[int, Meta(ge=0, le=100_000)] = 64
    """Unfinished jobs of one key; 0: there are no jobs here."""
    max_store_mb: Annotated[int, Meta(ge=1, le=1_048_576)] = 1024
    """What requests and results of all jobs may take on disk; the oldest results make room."""


class Tracing(Section, frozen=True, kw_only=True):
    """Where traces of requests go, as OTLP over HTTP; applies live."""

    endpoint: str = ""
    """A collector's URL; without a path `/v1/traces` is added. Empty: there are no traces."""
    headers: dict[str, str] = {}
    """What each request to it carries: credentials."""
    sample_ratio: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """Of requests whose client has not decided."""
    service_name: Name = "llmgw"


class Logging(Section, frozen=True, kw_only=True):
    level: Literal["debug", "info", "warning", "error"] = "info"


class Usage(Section, frozen=True, kw_only=True):
    retention_days: Annotated[int, Meta(ge=1, le=4000)] = 400
    """How long the sums of what was used are kept; a file per day."""


class Config(Section, frozen=True, kw_only=True):
    """The whole file."""

    server: Server = Server()
    security: Security = Security()
    cluster: Cluster = Cluster()
    models: list[Model] = []
    backends: dict[str, Backend] = {}
    aliases: dict[str, str] = {}
    runtimes: dict[str, Runtime] = {}
    runtime_policy: RuntimePolicy = RuntimePolicy()
    engines: Engines = Engines()
    offline: Offline = Offline()
    ports: Ports = Ports()
    paths: Paths = Paths()
    hardware: Hardware = Hardware()
    firewall: Firewall = Firewall()
    jobs: Jobs = Jobs()
    logging: Logging = Logging()
    tracing: Tracing = Tracing()
    usage: Usage = Usage()
