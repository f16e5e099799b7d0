"""`python -m cli` is `llmgw`."""

import sys

from cli.app import main

sys.exit(main(sys.argv[1:]))
