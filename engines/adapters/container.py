"""An engine in a container that podman runs: any image, named by its digest, that serves HTTP.

The unit stays the record. podman runs in its foreground, without a cgroup of its own (`--cgroups=disabled`), so the
container's processes are the unit's: it ends with the unit whatever kills it, the unit's memory limit holds for it, and
its processes are found where those of every engine are. Docker cannot be used so: its containers are children of its
daemon, survive the unit, and are seen by none of this.

- Only an image that is there already is run (`--pull=never`): a start must not wait for gigabytes from elsewhere. The
  digest says which one; a tag may mean another tomorrow.
- The image's file system is read-only, and so are the weights, at their own path; `{home}` alone may be written. No
  capability is left, and the process is the engines' user, whatever the image says.
- It has the machine's network, and must listen on `{host}`, which is loopback, at `{port}`.
- The key's file is mounted where a word asks for `{keyFile}`. That the engine demands it cannot be proved.
- Cards come by CDI, as nvidia-container-toolkit describes them: `nvidia.com/gpu=UUID`. (Not run on a card by us.)
"""

import hashlib
import re
from pathlib import Path

from core.errors import ConfigError
from engines.adapter import (
    KEY_FILE,
    RUN_AS,
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
from engines.adapters.answers import read_unknown_health
from engines.adapters.placeholders import DEFAULT_HEALTH, KEY_PLACEHOLDER, check_words, fill
from engines.lora_api import LoraApi
from engines.options import Option, check_options
from engines.spec import check_common, check_single_node, check_weights, require_clean

_OPTIONS = {
    "image": Option(str),
    "entrypoint": Option(str),
    "shmMib": Option(int, minimum=1, maximum=1 << 20),
}

_IMAGE = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?(?::\d{1,5})?/)?"
    r"[a-z0-9]+(?:(?:[._/-]|__)[a-z0-9]+){0,64}@sha256:[0-9a-f]{64}"
)
"""REGISTRY[:PORT]/NAME@DIGEST. podman refuses a tag beside a digest, and a colon may mean `docker-archive:/x` to it."""

_KEY_INSIDE = "/run/llmgw/key"

_CONTAINED = (
    # Its events would stand among the engine's own lines.
    "--events-backend=none",
    # What is left of the one before, when the machine lost power: the name is free again.
    *("run", "--rm", "--replace", "--pull=never", "--network=host"),
    # See the module; and limits of files and memory are the unit's.
    *("--cgroups=disabled", "--ulimit=host", "--log-driver=passthrough", "--sdnotify=ignore"),
    *("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges"),
)


class ContainerAdapter:
    """See the module."""

    name = "container"
    needs_weights = False
    needs_build = True
    usage_when_asked = False  # nobody knows whether it knows the field
    demands_key = False
    routes = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank", "/tokenize"})
    overhead_mib: int | None = None
    lora = Lora.NEVER
    lora_api: LoraApi | None = None
    gate: Gate | None = None
    works_on = False
    multi_node = False
    metrics_path: str | None = None

    def check_spec(self, spec: EngineSpec) -> list[str]:
        problems = check_common(spec) + check_single_node(spec) + check_options(spec.options, _OPTIONS)
        image = str(spec.options.get("image", ""))
        if not _IMAGE.fullmatch(image):
            problems.append(f"options.image {image[:80]!r} is not of the form NAME@sha256:DIGEST, without a tag")
        if spec.weights is not None:
            problems += check_weights(spec.weights)
        for path in (spec.weights, spec.home):
            if path is not None and set(str(path)) & set(',"'):
                problems.append(f"{str(path)[:120]!r} has a comma or a quote in it, and cannot be mounted")
        return problems + check_words(spec)

    def build_command(self, spec: EngineSpec, build: Build | None, facts: NodeFacts) -> EngineCommand:
        require_clean(spec, self.check_spec(spec))
        if build is None:
            raise ConfigError(
                f"runtime {spec.runtime_id!r}: podman is not installed",
                hint="apt-get install podman crun",
                code="engine_build_missing",
            )
        words = (*spec.command, *spec.args)
        environment = (*spec.env, *_own_environment(spec))
        return EngineCommand(
            argv=(
                *(str(build.executable), *_CONTAINED, "--name", container_name(spec.runtime_id), "--user", RUN_AS),
                *_mounts(spec, any(KEY_PLACEHOLDER in word for word in words)),
                # By name: podman takes the values from its own environment, and they are in no command line.
                *(word for name, _ in environment for word in ("--env", name)),
                *_devices(spec),
                *_option_words(spec),
                str(spec.options["image"]),
                *(fill(word, spec, key_file=_KEY_INSIDE) for word in words),
            ),
            environment=environment,
            is_container=True,
        )

    def health_probe(self, spec: EngineSpec) -> HealthProbe:
        return HealthProbe(fill(spec.health_url or DEFAULT_HEALTH, spec))

    def read_health(self, status: int, body: bytes) -> Health:
        return read_unknown_health(status)

    def read_progress(self, metrics: str) -> Progress:
        return Progress()


def container_name(runtime_id: str) -> str:
    """A name that podman takes. A runtime's id may have characters that it does not."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "-", runtime_id)[:100]
    if plain != runtime_id:
        plain += f"-{hashlib.sha256(runtime_id.encode()).hexdigest()[:8]}"
    return f"llmgw-{plain}"


def _own_environment(spec: EngineSpec) -> tuple[tuple[str, str], ...]:
    own = {"HOME": str(spec.home), "PORT": str(spec.port), "CUDA_VISIBLE_DEVICES": ",".join(spec.devices)}
    return tuple(own.items())


def _mounts(spec: EngineSpec, with_key: bool) -> tuple[str, ...]:
    mounts = [_mount(spec.home, spec.home, read_only=False)]
    if spec.weights is not None:
        mounts.append(_mount(spec.weights, spec.weights))
    if with_key:
        mounts.append(_mount(KEY_FILE, _KEY_INSIDE))
    return tuple(word for mount in mounts for word in ("--mount", mount))


def _mount(source: Path | str, target: Path | str, *, read_only: bool = True) -> str:
    return f"type=bind,src={source},dst={target}{',ro=true' if read_only else ''}"


def _devices(spec: EngineSpec) -> tuple[str, ...]:
    return tuple(word for uuid in spec.devices for word in ("--device", f"nvidia.com/gpu={uuid}"))


def _option_words(spec: EngineSpec) -> tuple[str, ...]:
    words: tuple[str, ...] = ()
    if isinstance(spec.options.get("shmMib"), int):
        words += ("--shm-size", f"{spec.options['shmMib']}m")
    if spec.options.get("entrypoint"):
        words += (f"--entrypoint={spec.options['entrypoint']}",)
    return words
