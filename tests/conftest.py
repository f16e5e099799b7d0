"""Runs every `async def test_…` on a fresh event loop in debug mode; nothing else is global."""

import asyncio
import inspect
import os

import pytest
from hypothesis import settings

SLOW_CALLBACK_S = 1.0
TEST_DEADLINE_S = 300.0

# A busy machine is no falsifying example; and the examples are the same each time, so that a change is not blamed for
# what was there before it. `HYPOTHESIS_SEARCH=1` looks for new ones.
settings.register_profile("llmgw", deadline=None, derandomize="HYPOTHESIS_SEARCH" not in os.environ)
settings.load_profile("llmgw")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Give coroutine tests a loop of their own and a deadline that no test should ever need."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names if name in pyfuncitem.funcargs}

    async def bounded() -> None:
        asyncio.get_running_loop().slow_callback_duration = SLOW_CALLBACK_S
        async with asyncio.timeout(TEST_DEADLINE_S):
            await pyfuncitem.obj(**arguments)

    with asyncio.Runner(debug=True) as runner:
        runner.run(bounded())
    return True
