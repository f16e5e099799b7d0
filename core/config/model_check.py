"""What serves the models, and others' services that may: rules between `models`, `runtimes` and `backends`. Pure."""

import re
from collections.abc import Iterable, Mapping

from core.config.backend import Backend, ModelTarget
from core.config.backend_routes import KNOWN_ROUTES
from core.config.cluster_check import check_variable
from core.config.names import no_such
from core.config.problem import Problem
from core.config.schema import Config, Model
from core.config.service_url import ServiceUrl, parse_service_url

_BACKEND_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LONGEST_KEY = 4000
_SERVED_BY = ("runtime", "backend", "targets")


def check_models(config: Config) -> Iterable[Problem]:
    """Ids, and that everything is there that they are to be served by."""
    seen: dict[str, int] = {}
    for index, model in enumerate(config.models):
        path = f"models[{index}]"
        if not model.id.isprintable() or model.id != model.id.strip():
            yield Problem(f"{path}.id", "has control characters or spaces around it")
        if model.id in seen:
            yield Problem(f"{path}.id", f"{model.id} is defined twice", hint=f"also models[{seen[model.id]}]")
        seen.setdefault(model.id, index)
        yield from _check_served(config, model, path)
        if model.adapter and not model.runtimes():
            yield Problem(f"{path}.adapter", "has no runtime to load it", hint="set runtime, or a target with one")
    yield from _check_adapters(config)


def check_backends(config: Config) -> Iterable[Problem]:
    """Every backend by itself."""
    for name, backend in config.backends.items():
        path = f"backends.{name}"
        if not _BACKEND_ID.fullmatch(name):
            yield Problem(path, "is no backend id: letters, digits and . _ - only, at most 128")
        yield from _check_service(backend, path)
        yield from _check_key(backend, path)
        for ours, theirs in (("firstByteTimeoutMs", "timeoutMs"), ("betweenBytesTimeoutMs", "streamIdleTimeoutMs")):
            if _limit(backend, ours) is not None and _limit(backend, theirs) is not None:
                yield Problem(f"{path}.{theirs}", f"says the same as {ours}, which is set too", hint="remove one")
        for index, route in enumerate(backend.routes):
            if route not in KNOWN_ROUTES:
                yield Problem(f"{path}.routes[{index}]", no_such("route", route, KNOWN_ROUTES))


def fill_keys(backends: Mapping[str, Backend], variables: Mapping[str, str]) -> tuple[dict[str, str], list[Problem]]:
    """The keys of the backends that name a variable (`apiKeyEnv`), and the variables that are not there."""
    keys: dict[str, str] = {}
    problems: list[Problem] = []
    for name, backend in backends.items():
        path, variable = f"backends.{name}.apiKeyEnv", backend.api_key_env
        if not variable:
            continue
        if wrong := list(check_variable(path, variable)):
            problems += wrong
        elif backend.api_key:
            problems.append(Problem(path, "apiKey is set too", hint="remove one"))
        elif variable not in variables:
            problems.append(
                Problem(
                    path,
                    f"the variable {variable} is not set",
                    hint=f"set {variable} in the environment or in the environment file",
                )
            )
        elif not variables[variable]:
            problems.append(Problem(path, f"the variable {variable} is empty", hint="give it the service's key"))
        else:
            keys[name] = variables[variable]
    return keys, problems


def _check_adapters(config: Config) -> Iterable[Problem]:
    """An engine answers each name of its with one thing."""
    names: dict[tuple[str, str], tuple[int, str]] = {}
    for index, model in enumerate(config.models):
        for place in model.places():
            name = place.upstream_model or model.id
            known = names.setdefault((place.runtime, name), (index, model.adapter))
            if place.runtime and known[1] != model.adapter:
                field = "upstreamModel" if model.upstream_model else "id"
                hint = f"models[{known[0]}] is {known[1] or 'the runtime without an adapter'}"
                yield Problem(f"models[{index}].{field}", f"{name} is something else for {place.runtime}", hint=hint)


def _check_served(config: Config, model: Model, path: str) -> Iterable[Problem]:
    given = [word for word in _SERVED_BY if getattr(model, word)]
    if not given:
        yield Problem(f"{path}.runtime", "is missing", hint="or set backend, or targets")
    elif len(given) > 1:
        hint = "several are written as targets" if "targets" not in given else "move it into targets"
        yield Problem(f"{path}.{given[0]}", f"is set beside {given[1]}", hint=hint)
    elif model.targets:
        yield from _check_targets(config, model, path)
    else:
        yield from _check_names(config, ModelTarget(runtime=model.runtime, backend=model.backend), path)


def _check_targets(config: Config, model: Model, path: str) -> Iterable[Problem]:
    named: dict[str, int] = {}
    served: dict[tuple[str, str], int] = {}
    for index, target in enumerate(model.targets):
        where = f"{path}.targets[{index}]"
        if bool(target.runtime) == bool(target.backend):
            message = "runtime and backend are both set" if target.runtime else "has neither runtime nor backend"
            yield Problem(where, message, hint="a target is one of them")
            continue
        yield from _check_names(config, target, where)
        place = (target.runtime, target.backend)
        if place in served:
            word = "runtime" if target.runtime else "backend"
            message = f"{target.runtime or target.backend} serves this model already"
            yield Problem(f"{where}.{word}", message, hint=f"also {path}.targets[{served[place]}]; use weight")
        elif target.name in named:
            other = f"also {path}.targets[{named[target.name]}]"
            yield Problem(f"{where}.id", f"{target.name} is the name of another target", hint=other)
        served.setdefault(place, index)
        named.setdefault(target.name, index)


def _check_names(config: Config, target: ModelTarget, path: str) -> Iterable[Problem]:
    if target.runtime and target.runtime not in config.runtimes:
        yield Problem(f"{path}.runtime", no_such("runtime", target.runtime, config.runtimes))
    if target.backend and target.backend not in config.backends:
        yield Problem(f"{path}.backend", no_such("backend", target.backend, config.backends))


def _check_service(backend: Backend, path: str) -> Iterable[Problem]:
    try:
        url = parse_service_url(backend.base_url)
    except ValueError as error:
        yield Problem(f"{path}.baseUrl", str(error), hint="as in https://api.example.org/v1")
        return
    if backend.ca_file and not url.tls:
        yield Problem(f"{path}.caFile", "is only for https")
    if _tells_key(backend, url):
        hint = "use https, or set allowPlainHttp: true where the way there is private"
        yield Problem(f"{path}.baseUrl", f"the key would go to {url.host} unencrypted", hint=hint)


def _tells_key(backend: Backend, url: ServiceUrl) -> bool:
    return bool(backend.api_key) and not (url.tls or url.is_near or backend.allow_plain_http)


def _check_key(backend: Backend, path: str) -> Iterable[Problem]:
    key = backend.api_key
    if key and (not key.isascii() or not key.isprintable() or " " in key or len(key) > _LONGEST_KEY):
        field = "apiKeyEnv" if backend.api_key_env else "apiKey"
        yield Problem(f"{path}.{field}", "is no key: ASCII without spaces and line ends")


def _limit(backend: Backend, key: str) -> int | None:
    return {
        "firstByteTimeoutMs": backend.first_byte_timeout_ms,
        "timeoutMs": backend.timeout_ms,
        "betweenBytesTimeoutMs": backend.between_bytes_timeout_ms,
        "streamIdleTimeoutMs": backend.stream_idle_timeout_ms,
    }[key]
