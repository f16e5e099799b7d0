"""The three kinds of finding."""

from core.hardware import Finding

OK, WARNING, BLOCKS = "ok", "warning", "blocks"


def ok(check: str, found: str) -> Finding:
    return Finding(check=check, status=OK, found=found)


def warning(check: str, found: str, remedy: str) -> Finding:
    return Finding(check=check, status=WARNING, found=found, remedy=remedy)


def blocks(check: str, found: str, remedy: str) -> Finding:
    return Finding(check=check, status=BLOCKS, found=found, remedy=remedy)
