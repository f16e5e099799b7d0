"""One thing that is wrong with a config, and all of them together as an error."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import ConfigError


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """`path` is where in the file (`runtimes.qwen.port`; empty: the file as a whole)."""

    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        lead = f"{self.path}: " if self.path else ""
        return f"{lead}{self.message}{f' ({self.hint})' if self.hint else ''}"


class ConfigErrors(ConfigError):
    """Every problem of one file, collected before anything was refused."""

    code = "config_invalid"

    def __init__(self, path: str, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        listing = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__(f"{path}: {count}{listing}", hint="llmgw config check")
