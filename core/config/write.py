"""Changing the config file without losing what an operator wrote: comments, order, `${VAR}`.

The text is parsed for a round trip, changed, checked as a whole, and only then replaces the file; the previous
one stays beside it as `config.yaml.previous`. Two writers at once wait for none: the second is refused.
"""

import contextlib
import io
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

from core.config.load import Loaded, parse_config
from core.config.problem import ConfigErrors, Problem
from core.files import lock_file, write_atomic

Document = MutableMapping[str, object]


def edit_config(
    path: Path, variables: Mapping[str, str], change: Callable[[Document], None], *, has_made_keys: bool = False
) -> Loaded:
    """Apply `change` to the document and write it, if the result is a valid config. Mode and owner are kept.

    Raises: ConfigErrors (nothing was written), StorageError, ConflictError (`locked`: somebody else writes).
    """
    with lock_file(path.with_name(f".{path.name}.lock")):
        before = path.read_bytes() if path.exists() else b""
        text = render_edit(before, path, change)
        loaded = parse_config(text.encode(), path, variables, has_made_keys=has_made_keys)
        if text.encode() == before:
            return loaded
        mode, uid, gid = 0o640, -1, -1
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            mode, uid, gid = status.st_mode & 0o777, status.st_uid, status.st_gid
        if before:
            write_atomic(path.with_name(f"{path.name}.previous"), before, mode=mode, uid=uid, gid=gid)
        write_atomic(path, text, mode=mode, uid=uid, gid=gid)
        return loaded


def render_edit(before: bytes, path: Path, change: Callable[[Document], None]) -> str:
    """The file's new text. Pure but for `change`. Raises: ConfigErrors when the old text is not YAML."""
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        document = yaml.load(before.decode("utf-8"))
    except (YAMLError, UnicodeDecodeError) as error:
        raise ConfigErrors(str(path), [Problem("", f"is not YAML: {str(error).splitlines()[0][:200]}")]) from error
    lead = ""
    if document is None:  # only comments, or nothing: keep them on top
        lead = before.decode("utf-8")
        document = CommentedMap()
    if not isinstance(document, CommentedMap):
        raise ConfigErrors(str(path), [Problem("", "expected sections at the top")])
    change(document)
    out = io.StringIO()
    yaml.dump(document, out)
    if lead and not lead.endswith("\n"):
        lead += "\n"
    return lead + out.getvalue()
