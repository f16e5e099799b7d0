"""Is there the user that engines run as?"""

from collections.abc import Iterator

from core.hardware import Finding
from daemon.hardware.checks.finding import blocks, ok
from daemon.hardware.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    if not facts.engine_user_needed:
        return
    if facts.engine_user_exists:
        yield ok("engine user", f"engines run as {facts.engine_user}")
    else:
        yield blocks(
            "engine user",
            f"the system user {facts.engine_user} does not exist, so no engine can start",
            "systemd-sysusers makes the package's own; or set engines.user",
        )
