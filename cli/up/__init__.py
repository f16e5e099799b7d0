"""`llmgw up`: supervisor, daemon and gateway in the foreground, for a machine that systemd does not run for us.

`programs.py` says what runs (pure), `child.py` runs one of them, `leftovers.py` ends what a killed `up` left behind,
`bring_up.py` goes from running programs to a first answer, `foreground.py` puts it together.
"""

from cli.up.command import up

__all__ = ["up"]
