"""What every back end must do, as plain async functions over a `Lab`; each public one in these modules is a test."""

import inspect
from collections.abc import Awaitable, Callable
from types import ModuleType

from tests.contract.lab import Lab
from tests.contract.scenarios import failures, files, groups, life, logs, processes, readiness, relations, values

Scenario = Callable[[Lab], Awaitable[None]]


def collect(*modules: ModuleType) -> dict[str, Scenario]:
    """Name -> scenario, in the order of the files."""
    found: dict[str, Scenario] = {}
    for module in modules:
        for name, value in vars(module).items():
            if inspect.iscoroutinefunction(value) and value.__module__ == module.__name__ and name[0] != "_":
                found[name] = value
    return found


SCENARIOS = collect(life, failures, readiness, processes, relations, values, files, logs, groups)
