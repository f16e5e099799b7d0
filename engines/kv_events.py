"""`options.kvEvents`: an engine tells, over ZeroMQ, which blocks of tokens its prefix cache holds. Pure.

vLLM and SGLang publish what they store and remove as it happens, and answer who asks for what was missed. ZeroMQ asks
nobody for a key, and the events hold the tokens of prompts: on a port, loopback or not, every user of the machine could
read them. So both sockets are unix sockets in a directory that only the engine's account and root may enter. Both
engines bind such an address as it is (vLLM would not bind one of loopback, but connect to it).

Blocks are named by hashes. Who compares them over restarts and nodes needs the same seed everywhere: `HASH_SEED`.
"""

import json

from engines.adapter import EngineSpec, KvEvents
from engines.options import Option
from engines.policy import find_flag

KV_OPTIONS = {"kvEvents": Option(bool)}

HASH_SEED = {"PYTHONHASHSEED": "0"}

_LONGEST = 107
"""Bytes of a unix socket's path."""


def kv_events(spec: EngineSpec) -> KvEvents | None:
    """Where this runtime's engine tells of its cache; None: it does not. Of a group the head alone does."""
    if not is_asked(spec) or (spec.rendezvous is not None and spec.rendezvous.rank):
        return None
    return KvEvents(endpoint=f"ipc://{spec.sockets}/kv", replay=f"ipc://{spec.sockets}/old")


def is_asked(spec: EngineSpec) -> bool:
    """Whether the config wants them."""
    return spec.options.get("kvEvents") is True


def check_kv_events(spec: EngineSpec, *, needs: tuple[str, ...]) -> list[str]:
    """Everything wrong with the wish, as sentences. `needs`: flags that take away what there is to tell."""
    if not is_asked(spec):
        return []
    problems = []
    word = find_flag(spec.engine, spec.args, *needs)
    if word:
        problems.append(f"options.kvEvents tells of the prefix cache, and argument {word[:60]!r} turns that off")
    if len(f"{spec.sockets}/old".encode()) > _LONGEST:
        problems.append(
            f"options.kvEvents: a socket in {str(spec.sockets)[:200]} has a path of more than {_LONGEST} bytes"
        )
    return problems


def publisher_config(events: KvEvents, **more: object) -> str:
    """The value of `--kv-events-config`."""
    told = {"publisher": "zmq", "endpoint": events.endpoint, "replay_endpoint": events.replay, **more}
    return json.dumps(told, separators=(",", ":"))
