"""Builders of route tables for these tests: short to write, valid to use."""

from hashlib import sha256

from core.api import ApiKey, RouteModel, RouteTable, RouteTarget, SecurityPolicy


def target(id_: str = "t1", **changes: object) -> RouteTarget:
    """A ready target on loopback, with some fields changed."""
    fields: dict[str, object] = {"id": id_, "runtime": id_, "host": "127.0.0.1", "port": 8201, "ready": True}
    # Many: what is not about slots must not wait for one.
    fields |= {"state": "running", "max_concurrency": 256}
    return RouteTarget(**(fields | changes))  # type: ignore[arg-type]


def unready(state: str, id_: str = "t1", **changes: object) -> RouteTarget:
    """A target that does not serve, in this state."""
    return target(id_, ready=False, state=state, **changes)


def model(id_: str, *targets: RouteTarget, aliases: tuple[str, ...] = (), advertise: bool = True) -> RouteModel:
    return RouteModel(id=id_, targets=list(targets), aliases=list(aliases), advertise=advertise)


def key(value: str, scope: str = "inference", name: str = "") -> ApiKey:
    return ApiKey(sha256=sha256(value.encode()).hexdigest(), scope=scope, name=name)


def table(*models: RouteModel, keys: tuple[ApiKey, ...] = (), serving: bool = True, **security: object) -> RouteTable:
    """Version 1 of a table, bound to loopback unless `security` says otherwise."""
    policy = SecurityPolicy(**security)  # type: ignore[arg-type]
    return RouteTable(
        version=1, epoch="e1", node="n1", models=list(models), keys=list(keys), serving=serving, security=policy
    )
