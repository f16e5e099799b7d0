"""Which files are a caller's: a folder named by its mark in ComfyUI's output and input folders. Pure.

Every prefix under which a node saves is moved below that folder, and so is every file that is uploaded. What ComfyUI
keeps in its temporary folder has random names and no folders, so there only the names that appeared in the caller's
own results count.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from core.errors import UsageError

DEFAULT_PREFIX = "ComfyUI"
_FOLDERS = ("output", "input", "temp")
_NOT_IN_PREFIX = re.compile(r"[^A-Za-z0-9 _.%()+=-]")
_PART_CHARACTERS = 80
_DEPTH = 4
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 _.()+=%-]{0,199}")
_MEDIA = frozenset(
    """png jpg jpeg webp gif bmp tif tiff exr mp4 webm mov mkv avi wav mp3 flac ogg opus m4a aac glb gltf obj stl fbx
    ply latent""".split()  # noqa: SIM905 - a list of words reads best as words
)
"""Endings of what may be uploaded: pictures, sounds, films and meshes, and nothing that a browser runs."""


class FileRefused(UsageError):
    """A file's name that no caller may use."""

    code = "workflow_file_refused"


@dataclass(frozen=True, slots=True)
class File:
    """A file as ComfyUI names it."""

    name: str
    subfolder: str = ""
    folder: str = "output"


def own_prefix(caller: str, wanted: str) -> str:
    """Where a node saves that wants to save under this prefix."""
    parts = []
    for part in wanted.replace("\\", "/").split("/"):
        clean = _NOT_IN_PREFIX.sub("_", part).strip(" .")[:_PART_CHARACTERS].strip(" .")
        if clean:
            parts.append(clean)
    return "/".join([caller, *(parts[-_DEPTH:] or [DEFAULT_PREFIX])])


def own_input(caller: str, wanted: str) -> str:
    """The file that a node reads which names one of the caller's uploads. Raises: FileRefused."""
    name = wanted.removesuffix(" [input]").removeprefix(f"{caller}/")
    require_name(name)
    return f"{caller}/{name}"


def require_name(name: str) -> None:
    """Raises: FileRefused unless it is a plain file name: no folder, no dots in front, no ` [output]` behind."""
    if not _NAME.fullmatch(name) or name.endswith((" ", ".")):
        raise FileRefused(f"{name[:80]!r} is not the name of a file of yours")


def require_upload(name: str) -> None:
    """Raises: FileRefused unless a file of this name may be uploaded."""
    require_name(name)
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    if ending not in _MEDIA:
        raise FileRefused(f"a file that ends with .{ending[:20]} cannot be uploaded", hint="pictures, sounds and films")


def may_view(caller: str, file: File, own_temporary: Collection[File]) -> bool:
    """Whether a caller may read this file, and throw it away."""
    if file.folder not in _FOLDERS or not _NAME.fullmatch(file.name):
        return False
    parts = file.subfolder.split("/") if file.subfolder else []
    if not all(part and part.strip(" .") == part and not _NOT_IN_PREFIX.search(part) for part in parts):
        return False
    if file.folder == "temp":
        return file in own_temporary
    return parts[:1] == [caller]
