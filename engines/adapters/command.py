"""Any command that serves HTTP and says at a URL whether it is well.

Placeholders in a word of the command, of `args` and in the health URL are filled in (`engines.adapters.placeholders`).
An engine that is handed `{keyFile}` gets a key there, and is asked with it; that it demands the key cannot be proved,
so `demands_key` stays False.
"""

from engines.adapter import Build, EngineCommand, EngineSpec, Gate, Health, HealthProbe, Lora, NodeFacts, Progress
from engines.adapters.answers import read_unknown_health
from engines.adapters.placeholders import DEFAULT_HEALTH, check_words, fill
from engines.lora_api import LoraApi
from engines.options import check_options
from engines.spec import check_common, check_single_node, require_clean


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
    lora_api: LoraApi | None = None
    multi_node = False
    metrics_path: str | None = None

    def check_spec(self, spec: EngineSpec) -> list[str]:
        problems = check_common(spec) + check_single_node(spec) + check_options(spec.options, {})
        if not spec.command:
            problems.append("the runtime has no command (runtimes.<id>.command)")
        elif not spec.command[0].startswith("/"):
            problems.append(f"command {spec.command[0][:60]!r} must begin with an absolute path (or /usr/bin/env)")
        return problems + check_words(spec)

    def build_command(self, spec: EngineSpec, build: Build | None, facts: NodeFacts) -> EngineCommand:
        require_clean(spec, self.check_spec(spec))
        return EngineCommand(
            argv=tuple(fill(word, spec) for word in (*spec.command, *spec.args)),
            environment=(*spec.env, ("HOME", str(spec.home)), ("PORT", str(spec.port))),
            read_only_paths=(str(spec.weights),) if spec.weights else (),
            read_write_paths=(str(spec.home),),
        )

    def health_probe(self, spec: EngineSpec) -> HealthProbe:
        return HealthProbe(fill(spec.health_url or DEFAULT_HEALTH, spec))

    def read_health(self, status: int, body: bytes) -> Health:
        return read_unknown_health(status)

    def read_progress(self, metrics: str) -> Progress:
        return Progress()
