"""The simulated engine of ours (`engines.sim`), run by the interpreter and from the tree that runs us.

Several nodes: the same command everywhere with `--nnodes`, `--node-rank`, `--master-addr`, `--master-port`, as vLLM
takes them. Rank 0 refuses connections until all ranks have joined; the others serve nothing at all, not even `/health`.
"""

import sys

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
from engines.adapters.answers import read_server_health
from engines.lora_api import LoraApi
from engines.options import Option, check_options
from engines.own_tree import ROOT, python_path
from engines.prometheus import read_samples
from engines.sim.settings import FAULTS
from engines.spec import check_common, require_clean

_FLAGS: dict[str, tuple[str, Option]] = {
    "firstTokenS": ("--first-token-s", Option(float, minimum=0, maximum=86400)),
    "tokensPerS": ("--tokens-per-s", Option(float, minimum=0)),
    "tokens": ("--tokens", Option(int, minimum=0, maximum=1_000_000)),
    "fault": ("--fault", Option(str, choices=FAULTS)),
    "afterTokens": ("--after-tokens", Option(int, minimum=0)),
    "status": ("--status", Option(int, minimum=400, maximum=599)),
    "queue": ("--queue", Option(int, minimum=0)),
    "loadTimeS": ("--load-time", Option(float, minimum=0, maximum=86400)),
    "healthDelayS": ("--health-delay-s", Option(float, minimum=0, maximum=86400)),
    "healthStatus": ("--health-status", Option(int, minimum=200, maximum=599)),
    "crashAfter": ("--crash-after", Option(int, minimum=0)),
    "ballastMib": ("--ballast-mib", Option(int, minimum=0, maximum=1 << 20)),
    "refuseStart": ("--refuse-start", Option(bool)),
    "forkChild": ("--fork-child", Option(bool)),
    "ignoreTerm": ("--ignore-term", Option(bool)),
    "joinTimeoutS": ("--join-timeout-s", Option(float, minimum=0.1, maximum=86400)),
    "joinDelayS": ("--join-delay-s", Option(float, minimum=0, maximum=86400)),
}
_OPTIONS = {name: option for name, (_, option) in _FLAGS.items()}


class SimAdapter:
    """See the module."""

    name = "sim"
    needs_weights = False
    needs_build = False
    usage_when_asked = True
    demands_key = True
    gate: Gate | None = None
    works_on = False
    routes = frozenset({"/v1/chat/completions", "/v1/completions"})
    overhead_mib: int | None = 64  # an interpreter
    lora = Lora.NEVER
    lora_api: LoraApi | None = None
    multi_node = True
    metrics_path: str | None = "/metrics"

    def check_spec(self, spec: EngineSpec) -> list[str]:
        return check_common(spec) + check_options(spec.options, _OPTIONS)

    def build_command(self, spec: EngineSpec, build: Build | None, facts: NodeFacts) -> EngineCommand:
        require_clean(spec, self.check_spec(spec))
        # `--model=ID` in one word: an id may begin with a dash.
        models = [f"--model={model}" for model in spec.served_models]
        context = ("--context-length", str(spec.context_length)) if spec.context_length else ()
        return EngineCommand(
            argv=(
                *(sys.executable, "-m", "engines.sim", "--host", spec.host, "--port", str(spec.port)),
                *("--key-file", KEY_FILE, *models, "--slots", str(spec.max_concurrency), *context),
                *_meeting_words(spec),
                *_option_words(spec),
                *spec.args,
            ),
            environment=(
                *spec.env,
                ("HOME", str(spec.home)),
                ("PYTHONPATH", python_path()),
                ("PYTHONUNBUFFERED", "1"),
            ),
            read_only_paths=(str(ROOT),),
            read_write_paths=(str(spec.home),),
        )

    def health_probe(self, spec: EngineSpec) -> HealthProbe:
        return HealthProbe("" if spec.rendezvous and spec.rendezvous.rank else "/health")

    def read_health(self, status: int, body: bytes) -> Health:
        return read_server_health(status)

    def read_progress(self, metrics: str) -> Progress:
        samples = read_samples(metrics)
        return Progress(
            running=samples.get("sim_requests_running"),
            waiting=samples.get("sim_requests_waiting"),
            tokens_total=samples.get("sim_tokens_total"),
        )


def _meeting_words(spec: EngineSpec) -> tuple[str, ...]:
    meeting = spec.rendezvous
    if meeting is None:
        return ()
    return (
        *("--nnodes", str(meeting.size), "--node-rank", str(meeting.rank)),
        *("--master-addr", meeting.address, "--master-port", str(meeting.port)),
        *(("--own-addr", meeting.own_address) if meeting.own_address else ()),
    )


def _option_words(spec: EngineSpec) -> list[str]:
    words: list[str] = []
    for name, value in spec.options.items():
        flag = _FLAGS[name][0]
        if isinstance(value, bool):
            words.extend([flag] if value else [])
        else:
            words.extend((flag, str(value)))
    return words
