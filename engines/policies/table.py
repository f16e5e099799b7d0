"""The form of an engine's table of flags. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FlagTable:
    """Which flags of one engine an operator may not add, and how the engine spells flags."""

    refused: Mapping[str, str]
    """Flag as the engine documents it (`--host`, `-a`) -> why not, as the end of a sentence."""
    allowed: frozenset[str] = frozenset()
    """Flags that are fine although their names look suspicious."""
    short: frozenset[str] = frozenset()
    """Flags with one dash that are fine. Their names say nothing, so all others are refused."""
    patterns: tuple[tuple[str, str], ...] = ()
    """Further flags by regular expression -> reason; also for versions that are newer than the table."""
    underscores: bool = False
    """The engine reads `--api_key` as `--api-key`."""
    prefixes: bool = False
    """The engine takes a unique prefix (`--hos`) for a flag, as Python's argparse does."""
    dotted: bool = False
    """`--flag.key` sets a part of the flag's value."""
    strict: bool = False
    """Nothing passes but what is allowed: the engine's flags are not known well enough."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variable -> the refused flag that it stands for."""
    environment_prefix: str = ""
    """Variables that begin so stand for flags by their name: `LLAMA_ARG_THREADS` for `--threads`."""


SUSPICIOUS = frozenset(
    """file files path paths dir directory folder root url uri hf repo hub token key secret password host port address
    addr bind socket listen proxy plugin plugins script exec command agent tools mcp save load lora adapter adapters
    mmproj model models alias ssl tls cert ca certs download upload config preset presets import module trust remote
    middleware rpc logdir output hook hooks cls class custom endpoint endpoints ip connector kwargs sidecar""".split()  # noqa: SIM905 - a list of words reads best as words
)
"""Words in the name of a flag that no table knows for which it is refused until somebody has looked at it."""
