"""The section `backends` as types: others' services that speak OpenAI's API, and the targets of models. Pure.

Rules between fields are in `core/config/model_check.py`.
"""

from typing import Annotated, Literal

from msgspec import Meta

from core.config.cluster import Weight
from core.config.section import NonNegative, Section

AbsolutePath = Annotated[str, Meta(pattern="^(/.*)?$", max_length=4000)]
"""Empty: not given."""

_PATIENCE_MS = 600_000


class ModelTarget(Section, frozen=True, kw_only=True):
    """One of several places where a model is served: a runtime here, or a backend."""

    id: str = ""
    """What it is called where targets are listed; empty: as the runtime or the backend."""
    runtime: str = ""
    backend: str = ""
    upstream_model: str = ""
    """Its own name for the model; empty: the model's `upstreamModel`, else its id."""
    weight: Weight = 1
    """Its part of the requests, where all are equally busy."""
    node: str = ""
    """The node that may use it; empty: every one that has this config."""

    @property
    def name(self) -> str:
        return self.id or self.runtime or self.backend


class Backend(Section, frozen=True, kw_only=True):
    """Somebody else's service that speaks OpenAI's API."""

    type: Literal["openai"] = "openai"
    base_url: Annotated[str, Meta(max_length=2000)]
    """As OpenAI's clients are given it: it ends with `/v1`, mostly."""
    api_key: str = ""
    api_key_env: str = ""
    """The name of a variable of the environment that holds the key."""
    ca_file: AbsolutePath = ""
    """Authorities that may vouch for it, PEM; empty: the system's."""
    allow_plain_http: bool = False
    """Send the key without encryption, too, to an address that is not private."""
    first_byte_timeout_ms: NonNegative | None = None
    """How long an answer may take to begin; then another target is asked. 0: for ever; None: `timeout_ms`."""
    between_bytes_timeout_ms: NonNegative | None = None
    """How long it may pause; 0: for ever; None: `stream_idle_timeout_ms`."""
    timeout_ms: NonNegative | None = None
    """The reference system's word for `first_byte_timeout_ms`; None: ten minutes."""
    stream_idle_timeout_ms: NonNegative | None = None
    """Its word for `between_bytes_timeout_ms`; None: ten minutes."""
    max_concurrency: Annotated[int, Meta(ge=1, le=4096)] | None = None
    """Requests at once; None: no limit of ours."""
    routes: list[str] = []
    """The paths that it serves; none: those of `backend_routes.OPENAI_ROUTES`."""
    enabled: bool = True

    @property
    def first_byte_limit_ms(self) -> int:
        return _first(self.first_byte_timeout_ms, self.timeout_ms)

    @property
    def between_bytes_limit_ms(self) -> int:
        return _first(self.between_bytes_timeout_ms, self.stream_idle_timeout_ms)


def _first(*limits: int | None) -> int:
    return next((limit for limit in limits if limit is not None), _PATIENCE_MS)
