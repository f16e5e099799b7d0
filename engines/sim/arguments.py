"""The simulated engine's command line."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec

from core.errors import UsageError
from engines.sim.settings import FAULTS, Behaviour, Meeting, Settings


def parse_arguments(argv: Sequence[str]) -> Settings:
    """Raises: UsageError; SystemExit for what argparse itself refuses."""
    parsed = _build_parser().parse_args(argv)
    keys = _read_keys(parsed.key_file) if parsed.key_file else ()
    behaviour = {
        "firstTokenS": parsed.first_token_s,
        "tokensPerS": parsed.tokens_per_s,
        "tokens": parsed.tokens,
        "fault": parsed.fault,
        "afterTokens": parsed.after_tokens,
        "status": parsed.status,
    }
    try:
        return Settings(
            host=parsed.host,
            port=parsed.port,
            models=tuple(parsed.model or ["sim"]),
            keys=keys,
            context_length=parsed.context_length,
            slots=parsed.slots,
            queue=parsed.queue,
            load_time_s=parsed.load_time,
            health_delay_s=parsed.health_delay_s,
            health_status=parsed.health_status,
            crash_after=parsed.crash_after,
            refuse_start=parsed.refuse_start,
            ballast_mib=parsed.ballast_mib,
            fork_child=parsed.fork_child,
            ignore_term=parsed.ignore_term,
            meeting=_read_meeting(parsed),
            behaviour=msgspec.convert(behaviour, Behaviour),
        )
    except msgspec.ValidationError as error:
        raise UsageError(str(error)) from error


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="engines.sim", description="A simulated OpenAI-compatible engine.")
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0, help="0: one that the kernel chooses")
    add("--key-file", type=Path, help="one key per line; without it everybody is served")
    add("--model", action="append", help="an id to serve; may be given several times")
    add("--context-length", type=int, default=4096)
    add("--slots", type=int, default=4, help="requests that compute at once")
    add("--queue", type=int, default=1024, help="requests that may wait for a slot")
    add("--load-time", type=float, default=0.0, help="seconds of 503 at the start")
    add("--first-token-s", type=float, default=0.0)
    add("--tokens-per-s", type=float, default=0.0, help="0: as fast as possible")
    add("--tokens", type=int, default=16, help="tokens of an answer")
    add("--fault", choices=FAULTS, default="none")
    add("--after-tokens", type=int, default=0, help="where the fault strikes")
    add("--status", type=int, default=500, help="what the fault `error` answers")
    add("--health-delay-s", type=float, default=0.0)
    add("--health-status", type=int, default=200)
    add("--crash-after", type=int, default=0, help="die of SIGSEGV after so many answers")
    add("--refuse-start", action="store_true", help="say why and exit with 1")
    add("--ballast-mib", type=int, default=0, help="memory to hold")
    add("--fork-child", action="store_true", help="leave a child in its own session behind when killed")
    add("--ignore-term", action="store_true", help="go on at SIGTERM")
    add("--nnodes", type=int, default=1, help="processes that serve one model together")
    add("--node-rank", type=int, default=0, help="this one's place among them; 0 alone serves")
    add("--master-addr", default="127.0.0.1", help="where rank 0 waits for the others")
    add("--master-port", type=int, default=29500)
    add("--own-addr", default="", help="address of this machine from which a worker comes")
    add("--join-timeout-s", type=float, default=60.0, help="how long to wait for the other ranks")
    add("--join-delay-s", type=float, default=0.0, help="how late this rank comes")
    return parser


def _read_meeting(parsed: argparse.Namespace) -> Meeting | None:
    """None for a process that serves alone. Raises: UsageError."""
    if parsed.nnodes == 1 and parsed.node_rank == 0:
        return None
    if not 0 <= parsed.node_rank < parsed.nnodes:
        raise UsageError(f"--node-rank {parsed.node_rank} is not one of {parsed.nnodes} ranks")
    return Meeting(
        rank=parsed.node_rank,
        size=parsed.nnodes,
        address=parsed.master_addr,
        port=parsed.master_port,
        own_address=parsed.own_addr,
        timeout_s=parsed.join_timeout_s,
        join_delay_s=parsed.join_delay_s,
    )


def _read_keys(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the key file {path} cannot be read: {error}") from error
    keys = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    if not keys:
        # An empty file must not mean that everybody is served.
        raise UsageError(f"the key file {path} holds no key")
    return keys
