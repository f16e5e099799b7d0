"""Can the config on disk be used, and is it the one in use?"""

from collections.abc import Iterator

from core.config.idle import find_idle
from core.hardware import Finding
from daemon.hardware.checks.finding import blocks, ok, warning
from daemon.hardware.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    if facts.config_error and facts.config is None:
        yield blocks("config", facts.config_error, "llmgw config check")
    elif facts.config_error:
        yield warning("config", f"the file on disk is not in use: {facts.config_error}", "llmgw config check")
    else:
        yield ok("config", f"{facts.config_path} is in use")
    if facts.config is not None:
        for problem in find_idle(facts.config, facts.node):
            yield warning("config", f"{problem.path}: {problem.message}", problem.hint or "remove it")
