"""Are the mirrors there that builds and weights come from?"""

from collections.abc import Iterator

from core.hardware import Finding
from daemon.hardware.checks.finding import ok, warning
from daemon.hardware.facts import Facts
from engines.mirror import named_mirrors


def check(facts: Facts) -> Iterator[Finding]:
    for mirror in named_mirrors(facts.config) if facts.config is not None else ():
        if mirror.place in facts.absent_mirrors:
            remedy = f"mount it, or set {mirror.setting} to the directory or the address of one"
            yield warning("mirrors", f"{mirror} is no directory that can be read", remedy)
        else:
            yield ok("mirrors", f"builds and weights come from {mirror}")
