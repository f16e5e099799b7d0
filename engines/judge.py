"""What only the engines know to be wrong with a config's runtimes. Pure; the daemon and `llmgw config check` ask it."""

from core.config.problem import Problem
from core.config.schema import Config, Runtime
from core.errors import LlmgwError
from engines.policy import check_args, check_env
from engines.registry import names
from engines.sources import parse_source


def judge_runtimes(config: Config) -> list[Problem]:
    """Unknown engines, refused arguments and environment, and weights that cannot be named so."""
    return [
        problem for name, runtime in config.runtimes.items() for problem in _judge_runtime(f"runtimes.{name}", runtime)
    ]


def _judge_runtime(path: str, runtime: Runtime) -> list[Problem]:
    if runtime.engine not in names():
        known = ", ".join(names())
        return [Problem(f"{path}.engine", f"there is no engine {runtime.engine}; there are {known}")]
    problems = [Problem(f"{path}.args", text) for text in check_args(runtime.engine, runtime.args)]
    problems += [Problem(f"{path}.env", text) for text in check_env(runtime.engine, runtime.env)]
    if runtime.weights:
        try:
            parse_source(runtime.weights)
        except LlmgwError as error:
            problems.append(Problem(f"{path}.weights", error.message, hint=error.hint))
    return problems
