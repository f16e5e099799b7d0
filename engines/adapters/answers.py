"""What an engine's answer to a health probe means, for the two ways in which engines answer. Pure."""

from engines.adapter import Health


def read_server_health(status: int) -> Health:
    """Of a server that knows when it loads: 200 serves, 503 is not ready yet, and anything else is an error."""
    if status == 200:
        return Health.READY
    return Health.LOADING if status == 503 else Health.FAILED


def read_unknown_health(status: int) -> Health:
    """Of any command: 2xx serves; a refused key will not mend itself; anything else may still be loading."""
    if 200 <= status < 300:
        return Health.READY
    return Health.FAILED if status in (401, 403) else Health.LOADING
