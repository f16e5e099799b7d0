"""`python -m daemon`: the daemon's program. Settings come from the environment (`LLMGW_STATE`, `LLMGW_CONFIG`)."""

import os
import sys

import uvloop

from core import log as logging
from core.errors import LlmgwError
from core.paths import Layout
from daemon.app import App
from units.registry import choose_backend


def main() -> int:
    """Run until stopped; the exit code of the error otherwise."""
    logging.configure("llmgw-daemon", os.environ.get("LLMGW_LOG_LEVEL", "info"))
    try:
        layout = Layout.from_environment(os.environ)
        uvloop.run(App(layout, os.environ, choose_backend(layout)).run())
    except LlmgwError as error:
        logging.get_logger("daemon").error("daemon_failed", code=error.code, error=error.message, hint=error.hint)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
