"""A runtime's spec and its engine's command -> the unit that runs it. Pure."""

from dataclasses import dataclass, replace
from pathlib import Path

from engines.adapter import KEY_FILE, RUN_AS, EngineCommand, EngineSpec
from units.model import CREDENTIALS, KillMode, RestartPolicy, RestartWhen, Sandbox, ServiceType, ServiceUnit, UnitRecord
from units.names import engine_unit_name, gate_unit_name

_KEY_CREDENTIAL = "key"
SLICE = "llmgw-engines.slice"
_GATE_STOP_S = 10.0
"""It lets answers end for half of that; what it knows is on disk at any moment."""

# An engine has no reason to end by itself: one that exits 0 unasked (llama.cpp does on a stray SIGTERM) is as gone
# as one that crashed, so `always`. An ordered stop is never followed by a restart, whichever word stands here.
RESTART = RestartPolicy(when=RestartWhen.ALWAYS, delay_s=0.5, limit_burst=5, limit_interval_s=120.0)


@dataclass(frozen=True, slots=True)
class Account:
    """The system account that engines run as; empty user: the daemon's own (no root, nothing to switch to)."""

    user: str = ""
    group: str = ""
    supplementary: tuple[str, ...] = ()
    uid: int = -1
    gid: int = -1


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a unit needs of the machine beside the engine's own command."""

    account: Account
    key_path: Path | None
    start_deadline_s: float
    memory_max_bytes: int = 0
    device_nodes: tuple[str, ...] = ()
    """What the unit may open beside the pseudo devices: exactly the cards that the runtime was given."""


def build_unit(
    spec: EngineSpec, command: EngineCommand, record: UnitRecord, around: Surroundings, *, is_gated: bool = False
) -> ServiceUnit:
    """The engine's unit. `is_gated`: the key is its gate's, and it keeps the gate running."""
    is_contained = command.is_container
    key_word = str(around.key_path) if is_contained else f"{CREDENTIALS}/{_KEY_CREDENTIAL}"
    run_as = f"{max(around.account.uid, 0)}:{max(around.account.gid, 0)}"
    # A container is put together by root, and is a sandbox; what is in it runs as `run_as`.
    account = Account() if is_contained else around.account
    has_credential = around.key_path is not None and not is_gated and not is_contained
    environment = {
        "HOME": str(spec.home),
        "XDG_CACHE_HOME": str(spec.home / ".cache"),
        **dict(command.environment),
    }
    writable = tuple(dict.fromkeys((str(spec.home), *command.read_write_paths)))
    return ServiceUnit(
        name=engine_unit_name(spec.runtime_id),
        description=f"llmgw engine {spec.engine} for {spec.served_models[0]}"[:200],
        exec_start=tuple(word.replace(KEY_FILE, key_word).replace(RUN_AS, run_as) for word in command.argv),
        record=record,
        type=ServiceType.EXEC,
        environment=tuple(environment.items()),
        credentials=((_KEY_CREDENTIAL, str(around.key_path)),) if has_credential else (),
        user=account.user,
        group=account.group,
        supplementary_groups=account.supplementary,
        slice=SLICE,
        working_directory=str(spec.home),
        restart=RESTART,
        timeout_start_s=around.start_deadline_s,
        # podman hands SIGTERM on, and then clears away; asked as well, what does that would end before it is done.
        kill_mode=KillMode.MIXED if is_contained else KillMode.CONTROL_GROUP,
        memory_max_bytes=around.memory_max_bytes,
        upholds=(gate_unit_name(spec.runtime_id),) if is_gated else (),
        sandbox=None
        if is_contained
        else Sandbox(
            read_write_paths=writable,
            read_only_paths=command.read_only_paths,
            allow_jit=command.allow_jit,
            device_allow=around.device_nodes,
        ),
    )


def build_gate_unit(spec: EngineSpec, command: EngineCommand, record: UnitRecord, around: Surroundings) -> ServiceUnit:
    """The unit of the engine's gate: it lives and ends with the engine's, which starts it and brings it back."""
    engine_unit = engine_unit_name(spec.runtime_id)
    key_word = f"{CREDENTIALS}/{_KEY_CREDENTIAL}"
    return ServiceUnit(
        name=gate_unit_name(spec.runtime_id),
        description=f"llmgw gate of {spec.engine} for {spec.served_models[0]}"[:200],
        exec_start=tuple(word.replace(KEY_FILE, key_word) for word in command.argv),
        record=replace(record, kind="gate", devices=(), ports=record.ports[:1]),
        type=ServiceType.EXEC,
        environment=tuple(command.environment),
        credentials=((_KEY_CREDENTIAL, str(around.key_path)),),
        user=around.account.user,
        group=around.account.group,
        slice=SLICE,
        working_directory="/",
        restart=RESTART,
        timeout_stop_s=_GATE_STOP_S,
        binds_to=(engine_unit,),
        after=(engine_unit,),
        lock_memory=False,
        sandbox=Sandbox(
            read_write_paths=command.read_write_paths,
            read_only_paths=command.read_only_paths,
            allow_jit=command.allow_jit,
        ),
    )
