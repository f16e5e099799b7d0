"""How tests change a config that a daemon watches: in one step, as a careful operator does."""

import os
from pathlib import Path


def rewrite(path: Path, text: str) -> None:
    """Put a new file in the place of `path`, or of what it links to; who may read it stays."""
    # Not all that is a link on the way: a host's tree is looked at through one that leads back to our own.
    place = path.parent / os.readlink(path) if path.is_symlink() else path
    new = place.with_name(f".{place.name}.new")
    new.write_text(text)
    if place.exists():
        was = place.stat()
        os.chmod(new, was.st_mode & 0o7777)
        os.chown(new, was.st_uid, was.st_gid)
    new.replace(place)
