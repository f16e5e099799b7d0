"""Any command that serves HTTP and says at a URL whether it is well.

`{port}`, `{host}`, `{model}`, `{weights}`, `{home}` and `{keyFile}` in a word of the command, of `args` and in the
health URL stand for the runtime's own values; every other brace is left as it is. An engine that is handed
`{keyFile}` is expected to demand the key; nothing here can prove it, so `demands_key` stays False.
"""

from urllib.parse import urlsplit

from engines.adapter import (
    KEY_FILE,
    Build,
    EngineCommand,
    EngineSpec,
    Gate,
    Health,
    HealthProbe,
    Lora,
    NodeFacts,
    Progress,
)
from engines.options import check_options
from engines.spec import check_common, check_single_node, is_clean, require_clean

DEFAULT_HEALTH = "/health"


class CommandAdapter:
    """See the module."""

    name = "command"
    needs_weights = False
    needs_build = False
    usage_when_asked = False  # nobody knows whether it knows the field
    demands_key = False
    gate: Gate | None = None
    works_on = False
    routes = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank", "/tokenize"})
    overhead_mib: int | None = None  # nobody knows what a foreign command needs: `memoryGb` tells
    lora = Lora.NEVER
    multi_node = False
    metrics_path: str | None = None

    def check_spec(self, spec: EngineSpec) -> list[str]:
        problems = check_common(spec) + check_single_node(spec) + check_options(spec.options, {})
        if not spec.command:
            problems.append("the runtime has no command (runtimes.<id>.command)")
        elif not spec.command[0].startswith("/"):
            problems.append(f"command {spec.command[0][:60]!r} must begin with an absolute path (or /usr/bin/env)")
        problems.extend(f"command word {w[:60]!r} has a control character" for w in spec.command if not is_clean(w))
        problems.extend(_check_health_url(spec.health_url))
        if spec.weights is None and any("{weights}" in word for word in (*spec.command, *spec.args)):
            problems.append("the command asks for {weights}, but the runtime has none")
        return problems

    def build_command(self, spec: EngineSpec, build: Build | None, facts: NodeFacts) -> EngineCommand:
        require_clean(spec, self.check_spec(spec))
        return EngineCommand(
            argv=tuple(_fill(word, spec) for word in (*spec.command, *spec.args)),
            environment=(*spec.env, ("HOME", str(spec.home)), ("PORT", str(spec.port))),
            read_only_paths=(str(spec.weights),) if spec.weights else (),
            read_write_paths=(str(spec.home),),
        )

    def health_probe(self, spec: EngineSpec) -> HealthProbe:
        return HealthProbe(_fill(spec.health_url or DEFAULT_HEALTH, spec))

    def read_health(self, status: int, body: bytes) -> Health:
        """2xx serves; a refused key will not mend itself; anything else may still be loading."""
        if 200 <= status < 300:
            return Health.READY
        return Health.FAILED if status in (401, 403) else Health.LOADING

    def read_progress(self, metrics: str) -> Progress:
        return Progress()


def _fill(word: str, spec: EngineSpec) -> str:
    values = {
        "{port}": str(spec.port),
        "{host}": spec.host,
        "{model}": spec.served_models[0],
        "{weights}": str(spec.weights or ""),
        "{home}": str(spec.home),
        "{keyFile}": KEY_FILE,
    }
    # One pass from left to right: a value that looks like a placeholder is not filled again.
    out, rest = "", word
    while rest:
        name = next((name for name in values if rest.startswith(name)), "")
        out += values.get(name, rest[0])
        rest = rest[len(name) or 1 :]
    return out


def _check_health_url(url: str) -> list[str]:
    if not url or url.startswith("/"):
        return [] if is_clean(url) and " " not in url else ["the health URL has a space or a control character"]
    try:
        parts = urlsplit(url.replace("{port}", "1").replace("{host}", "h"))
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        known = False
    if not known or not is_clean(url) or " " in url:
        return [f"health URL {url[:80]!r} is neither a path nor an http(s) URL"]
    return []
