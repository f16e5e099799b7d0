"""The gateway's route table, from the config, the states of the runtimes and the backends' keys. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from core.api import (
    UNLIMITED,
    ApiKey,
    JobPolicy,
    RouteModel,
    RouteTable,
    RouteTarget,
    SecurityPolicy,
    ServerPolicy,
    TracingPolicy,
)
from core.config.backend import Backend, ModelTarget
from core.config.backend_routes import OPENAI_ROUTES
from core.config.schema import Config, Model
from core.config.service_url import parse_service_url
from core.runtime import RuntimeState
from daemon.backend_keys import KeyFile
from daemon.keys import config_keys
from daemon.runtimes.spec import served_models
from engines.adapter import EngineAdapter, tells_callers_apart
from engines.lora_api import request_name


@dataclass(frozen=True, slots=True)
class RuntimeView:
    """What the table needs to know of one runtime."""

    state: RuntimeState
    reason: str
    port: int
    key_file: str
    adapter: EngineAdapter
    hold: bool = False
    """An operator stopped it."""
    ejected: str = ""
    """Why it is out of rotation though it runs; empty: it is not."""
    adapters: frozenset[str] = frozenset()
    """Those that are loaded and will stay for as long as the table says so."""


class MadeKeys(Protocol):
    """The keys that are not the config's (`daemon.key_store.KeyStore`)."""

    @property
    def fault(self) -> str:
        """Why they cannot be read; empty when they can."""

    def for_gateway(self) -> list[ApiKey]: ...


def build_route_table(  # noqa: PLR0913 - the parts of a table
    config: Config,
    views: Mapping[str, RuntimeView],
    *,
    node: str,
    epoch: str,
    version: int,
    serving: bool = True,
    keys: MadeKeys | None = None,
    tracing: TracingPolicy | None = None,
    backend_keys: Mapping[str, KeyFile] | None = None,
) -> RouteTable:
    """Every model that is served here, with where it can be asked and why not."""
    aliases: dict[str, list[str]] = {}
    for alias, target in config.aliases.items():
        aliases.setdefault(target, []).append(alias)
    targets = _Targets(config, views, backend_keys or {}, node)
    return RouteTable(
        version=version,
        epoch=epoch,
        node=node,
        models=[
            described
            for model in config.models
            if (described := _model(config, model, aliases.get(model.id, []), targets.of(model))).targets
        ],
        serving=serving,
        keys=[*(key for _, key in config_keys(config.security)), *(keys.for_gateway() if keys else ())],
        security=SecurityPolicy(
            bind_host=config.server.host,
            allow_missing_auth=config.security.allow_missing_auth,
            allow_remote_admin=config.security.allow_remote_admin,
            allow_non_loopback_bind=config.security.allow_non_loopback_bind,
            only_admin_keys=bool(keys and keys.fault),
        ),
        jobs=JobPolicy(
            keep_minutes=config.jobs.keep_minutes,
            wait_minutes=config.jobs.wait_minutes,
            max_per_key=config.jobs.max_per_key,
            max_store_mb=config.jobs.max_store_mb,
        ),
        server=ServerPolicy(
            tls_cert_file=config.server.tls.cert_file,
            tls_key_file=config.server.tls.key_file,
            trusted_proxies=config.server.trusted_proxies,
            cors_origins=["*"] if config.security.allow_wildcard_cors else config.server.cors_origins,
        ),
        tracing=tracing or TracingPolicy(),
    )


def _model(config: Config, model: Model, aliases: list[str], targets: list[RouteTarget]) -> RouteModel:
    is_enabled = any(
        config.runtimes[target.runtime].enabled if target.runtime else config.backends[target.backend].enabled
        for target in targets
    )
    return RouteModel(
        id=model.id,
        kind=model.kind,
        parent=_parent(config, model),
        advertise=model.advertise and is_enabled,
        aliases=aliases,
        context_window=model.context_window,
        targets=targets,
    )


@dataclass(frozen=True, slots=True)
class _Targets:
    """Makes the targets of models."""

    config: Config
    views: Mapping[str, RuntimeView]
    keys: Mapping[str, KeyFile]
    node: str

    def of(self, model: Model) -> list[RouteTarget]:
        """Where it is served on this node."""
        places = [place for place in model.places() if place.node in ("", self.node)]
        return [
            self._runtime(model, place) if place.runtime else self._backend(place)
            for place in places
            if not place.runtime or place.runtime in self.views
        ]

    def _runtime(self, model: Model, place: ModelTarget) -> RouteTarget:
        view, runtime = self.views[place.runtime], self.config.runtimes[place.runtime]
        adapter = (place.upstream_model or model.id) if model.adapter else ""
        return RouteTarget(
            id=f"{self.node}/{place.runtime}",
            runtime=place.runtime,
            name=place.id,
            host="127.0.0.1",
            port=view.port,
            ready=view.state is RuntimeState.RUNNING and view.port > 0 and not view.ejected,
            state=view.state.value,
            reason=view.ejected or view.reason,
            hold=view.hold,
            key_file=view.key_file,
            upstream_model=self._adapter_name(model, place) if adapter else place.upstream_model,
            adapter=adapter,
            adapter_loaded=adapter in view.adapters,
            routes=sorted(view.adapter.routes),
            usage_when_asked=view.adapter.usage_when_asked,
            max_concurrency=runtime.max_concurrency,
            max_queued_requests=runtime.max_queued_requests,
            queue_timeout_ms=runtime.queue_timeout_ms,
            queue_retry_after_seconds=runtime.queue_retry_after_seconds,
            first_byte_timeout_ms=runtime.first_byte_timeout_ms,
            between_bytes_timeout_ms=runtime.between_bytes_timeout_ms,
            interactive_reserved_slots=runtime.interactive_reserved_slots,
            request_startup_wait_ms=runtime.request_startup_wait_ms,
            tells_callers_apart=tells_callers_apart(view.adapter),
            weight=place.weight,
        )

    def _adapter_name(self, model: Model, place: ModelTarget) -> str:
        """What a request must call the adapter; empty: the model's id."""
        name, api = place.upstream_model or model.id, self.views[place.runtime].adapter.lora_api
        asked = name if api is None else request_name(api, served_models(self.config, place.runtime)[0], name)
        return "" if asked == model.id else asked

    def _backend(self, place: ModelTarget) -> RouteTarget:
        backend = self.config.backends[place.backend]
        key = self.keys.get(place.backend, KeyFile())
        url = parse_service_url(backend.base_url)
        return RouteTarget(
            id=backend_target_id(place.backend),
            backend=place.backend,
            name=place.id,
            host=url.host,
            port=url.port,
            tls=url.tls,
            ca_file=backend.ca_file,
            base_path=url.path,
            ready=backend.enabled and not key.fault,
            state=backend_state(backend, key),
            reason=key.fault,
            key_file=key.path,
            upstream_model=place.upstream_model,
            routes=sorted(backend.routes or OPENAI_ROUTES),
            usage_when_asked=True,
            max_concurrency=backend.max_concurrency or UNLIMITED,
            first_byte_timeout_ms=backend.first_byte_limit_ms,
            between_bytes_timeout_ms=backend.between_bytes_limit_ms,
            weight=place.weight,
        )


def backend_target_id(name: str) -> str:
    """The same on every node and for every model: its slots are counted together. Runtimes' ids have a slash."""
    return f"backend:{name}"


def backend_state(backend: Backend, key: KeyFile) -> str:
    """How a backend stands before anybody has asked it; words of `core.api.BackendStatus`."""
    if not backend.enabled:
        return "disabled"
    return "failed" if key.fault else "ready"


def _parent(config: Config, model: Model) -> str:
    """The first model that is the own of a runtime of an adapter's; empty where there is none, and for other models."""
    if not model.adapter:
        return ""
    own = (other for other in config.models if not other.adapter)
    return next((other.id for other in own if set(other.runtimes()) & set(model.runtimes())), "")
