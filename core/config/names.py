"""A name that leads nowhere, with the one that was probably meant. Pure."""

import difflib
from collections.abc import Iterable


def no_such(kind: str, name: str, known: Iterable[str]) -> str:
    """`there is no model qwne; did you mean qwen?`"""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"there is no {kind} {name}" + (f"; did you mean {near[0]}?" if near else "")
