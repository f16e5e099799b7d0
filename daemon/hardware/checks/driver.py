"""Does the NVIDIA driver answer, and is every card still there?"""

from collections.abc import Iterator

from core.hardware import Finding
from daemon.hardware.checks.finding import blocks, ok, warning
from daemon.hardware.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    hardware = facts.hardware
    error = next((source.error for source in hardware.sources if source.name == "nvidia-smi"), None)
    if error is not None:
        yield blocks("nvidia driver", error.message, error.hint)
    elif hardware.driver is not None:
        cuda = f"CUDA {hardware.driver.cuda_version}" if hardware.driver.cuda_version else ""
        named = ", ".join(word for word in (hardware.driver.version, hardware.driver.flavour, cuda) if word)
        yield ok("nvidia driver", f"{named} answers")
    for problem in hardware.problems:
        if problem.code == "card_gone":
            yield warning("nvidia driver", problem.message, problem.hint)
