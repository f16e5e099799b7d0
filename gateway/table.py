"""The route table as the gateway looks things up in it: model id or alias -> targets, key hash -> scope.

Pure: built anew from every `RouteTable` that the daemon sends, then only read. Everything that a request would
otherwise compute (which targets are ready for a path, hashes as bytes, whether we are on loopback) is computed
here, once per table.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from core.api import RouteModel, RouteTable, RouteTarget
from gateway.auth import AccessPolicy, compile_policy
from gateway.client_address import TrustedProxies, compile_proxies
from gateway.cors import Cors, compile_cors

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"
WORKFLOWS = "/v1/workflows"
INFERENCE_PATHS = (
    CHAT, COMPLETIONS, EMBEDDINGS, "/v1/rerank", "/v1/score", "/v1/audio/speech", "/v1/images/generations",
    "/tokenize", "/detokenize", WORKFLOWS,
)  # fmt: skip
"""JSON in, and relayed to engines that speak them."""
FORM_PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations", "/v1/images/edits", "/v1/images/variations")
"""Forms with files in, and relayed likewise."""
MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"
RESPONSES = "/v1/responses"
TRANSLATED = {MESSAGES: CHAT, COUNT_TOKENS: CHAT, RESPONSES: CHAT}
"""Paths that can also be answered by an engine that serves another, in its words."""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model with what the router reads of it."""

    model: RouteModel
    ready: Mapping[str, tuple[RouteTarget, ...]]
    """Path -> the targets that serve it now, in the daemon's order."""
    is_renamed: bool = False
    """Whether a target knows the model by another name than its id, or may answer under one."""
    is_adapter: bool = False
    """Whether a target must have an adapter loaded to serve it."""

    def upstream_name(self, target: RouteTarget) -> str:
        """What the target's engine calls this model."""
        return target.upstream_model or self.model.id


@dataclass(frozen=True, slots=True)
class Lookup:
    """One table, indexed."""

    table: RouteTable
    models: Mapping[str, ModelEntry]
    """By id and by alias."""
    listed: tuple[RouteModel, ...]
    """What `GET /v1/models` shows: advertised, aliases left out."""
    access: AccessPolicy
    proxies: TrustedProxies = TrustedProxies()
    cors: Cors = Cors()


def speaks(target: RouteTarget, path: str) -> bool:
    """Whether the target's engine itself serves this path.

    One that names no routes is taken to serve all, but for those of which it need not know to be asked.
    """
    return path in target.routes if target.routes else path not in TRANSLATED


def offers(target: RouteTarget, path: str) -> bool:
    """Whether a request on this path can be answered there, by itself or by translation."""
    return speaks(target, path) or (path in TRANSLATED and speaks(target, TRANSLATED[path]))


def build_lookup(table: RouteTable, before: Lookup | None = None) -> Lookup:
    """Index a table. A model's own id wins over another model's alias of that name.

    What was made of the keys of the table `before` is used again while they are the same: there may be thousands.
    """
    is_same = before is not None and (before.table.keys, before.table.security) == (table.keys, table.security)
    models: dict[str, ModelEntry] = {}
    for model in table.models:
        is_adapter = any(target.adapter for target in model.targets)
        entry = ModelEntry(model, _ready_by_path(model), _is_renamed(model), is_adapter)
        models.setdefault(model.id, entry)
    for model in table.models:
        for alias in model.aliases:
            models.setdefault(alias, models[model.id])
    return Lookup(
        table=table,
        models=models,
        listed=tuple(model for model in table.models if model.advertise and model.targets),
        access=before.access if before is not None and is_same else compile_policy(table.keys, table.security),
        proxies=compile_proxies(table.server.trusted_proxies),
        cors=compile_cors(table.server.cors_origins),
    )


def _ready_by_path(model: RouteModel) -> dict[str, tuple[RouteTarget, ...]]:
    return {
        path: tuple(target for target in model.targets if target.is_usable and offers(target, path))
        for path in (*INFERENCE_PATHS, *FORM_PATHS, *TRANSLATED)
    }


def _is_renamed(model: RouteModel) -> bool:
    return any(target.backend or target.upstream_model not in ("", model.id) for target in model.targets)


def is_newer(candidate: RouteTable, current: RouteTable | None) -> bool:
    """Whether a table that arrives should replace the current one.

    Versions count within one life of the daemon (`epoch`); a new epoch always wins, because the daemon that runs
    now is the one that knows.
    """
    return current is None or candidate.epoch != current.epoch or candidate.version > current.version


def sorted_key_files(table: RouteTable) -> tuple[str, ...]:
    """Every file with a target's key, each once, in a stable order."""
    return tuple(sorted({target.key_file for model in table.models for target in model.targets if target.key_file}))
