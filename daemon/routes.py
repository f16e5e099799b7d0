"""The gateway's route table, from the config and the states of the runtimes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from core.api import ApiKey, JobPolicy, RouteModel, RouteTable, RouteTarget, SecurityPolicy, ServerPolicy, TracingPolicy
from core.config.schema import Config, Model
from core.runtime import RuntimeState
from daemon.keys import config_keys
from engines.adapter import EngineAdapter, tells_callers_apart


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
) -> RouteTable:
    """Every model whose runtime is known, with where it can be asked and why not."""
    aliases: dict[str, list[str]] = {}
    for alias, target in config.aliases.items():
        aliases.setdefault(target, []).append(alias)
    return RouteTable(
        version=version,
        epoch=epoch,
        node=node,
        models=[
            _model(config, model, aliases.get(model.id, []), views[model.runtime], node)
            for model in config.models
            if model.runtime in views
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


def _model(config: Config, model: Model, aliases: list[str], view: RuntimeView, node: str) -> RouteModel:
    runtime = config.runtimes[model.runtime]
    target = RouteTarget(
        id=f"{node}/{model.runtime}",
        runtime=model.runtime,
        host="127.0.0.1",
        port=view.port,
        ready=view.state is RuntimeState.RUNNING and view.port > 0 and not view.ejected,
        state=view.state.value,
        reason=view.ejected or view.reason,
        hold=view.hold,
        key_file=view.key_file,
        upstream_model=model.upstream_model,
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
    )
    return RouteModel(
        id=model.id,
        kind=model.kind,
        advertise=model.advertise and runtime.enabled,
        aliases=aliases,
        context_window=model.context_window,
        targets=[target],
    )
