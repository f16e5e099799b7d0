"""What the head of a file says of it before llama.cpp opens it as GGUF. Pure.

llama-server ends on a broken file, and now and then without a word of why. So the daemon looks first: at what the file
is when it is none, at its version, and whether what it promises to hold has room in it. Everything behind the head is
the engine's to judge.

The format: magic, version (32 bits), number of tensors, number of metadata values (64 bits each), little-endian;
then the values and the table of the tensors (docs/gguf.md of ggml-org/ggml). A model in parts is named by its first,
and each part has a value `split.count`: a file that is only called like a part is a whole model to llama.cpp (tried
with b10068).
"""

import re
import struct
from dataclasses import dataclass
from pathlib import Path

HEAD_BYTES = 512
"""What is to be read of the beginning."""

_MAGIC = b"GGUF"
_HEAD = struct.Struct("<IQQ")
_OLDEST_VERSION = 2
_LEAST_VALUE_BYTES = 13
"""A key's length and one letter or none, a type, and a value of one byte."""
_LEAST_TENSOR_BYTES = 24
"""A name's length, the number of dimensions, a type and an offset."""
_OLD_MAGICS = (b"lmgg", b"fmgg", b"tjgg", b"algg")
_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
PART_MARK = struct.pack("<Q", 11) + b"split.count" + struct.pack("<I", 2)
"""Stands before the number of parts (16 bits) among the values of each."""
_AGAIN = "download it again"
_CONVERT = "take the model's GGUF file, or convert it with llama.cpp's convert_hf_to_gguf.py"


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a file cannot be what is asked for."""

    what: str
    """Goes on after the file's name."""
    hint: str


def judge_kind(head: bytes) -> Flaw | None:
    """What the file is instead of GGUF; None: it begins as one."""
    if head.startswith(_MAGIC):
        return None
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not head:
        return Flaw("is empty", _AGAIN)
    if head.startswith(b"version https://git-lfs"):
        hint = "run git lfs pull where it was cloned, or fetch it with llmgw model add hf:ORG/REPO:FILE"
        return Flaw("is a pointer of git-lfs: the model itself was never fetched", hint)
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        hint = "take the address of the file itself; if it asks for a login, its server wants a token"
        return Flaw("is a web page and no model", hint)
    if len(head) > 8 and head[8:9] == b"{" and 0 < int.from_bytes(head[:8], "little") < 1 << 32:
        return Flaw("holds safetensors and no GGUF", _CONVERT)
    if text.startswith(b"{"):
        return Flaw("is JSON and no model: what a server said instead, or an index", _AGAIN)
    if head.startswith(b"PK\x03\x04"):
        return Flaw("is a zip archive, as PyTorch's weights are, and no GGUF", _CONVERT)
    if head.startswith(b"\x1f\x8b"):
        return Flaw("is compressed with gzip", "gunzip it first")
    if head.startswith(_OLD_MAGICS):
        return Flaw("is of a format older than GGUF, which llama.cpp no longer reads", _CONVERT)
    return Flaw(f"is not a GGUF file: it begins with {head[:4]!r}", _AGAIN)


def judge_head(head: bytes, size_bytes: int) -> Flaw | None:
    """Why llama.cpp could not load the file; None: nothing in its first `HEAD_BYTES` bytes speaks against it."""
    if flaw := judge_kind(head):
        return flaw
    if len(head) < len(_MAGIC) + _HEAD.size:
        return Flaw(f"ends after {size_bytes} bytes, in the middle of its head", _AGAIN)
    version, tensors, values = _HEAD.unpack_from(head, len(_MAGIC))
    if version and not version & 0xFFFF:
        return Flaw(
            "is big-endian: it was made for another kind of machine", "take the little-endian file of the model"
        )
    if version < _OLDEST_VERSION:
        return Flaw(f"is GGUF of version {version}, which llama.cpp does not read", _CONVERT)
    if len(_MAGIC) + _HEAD.size + values * _LEAST_VALUE_BYTES + tensors * _LEAST_TENSOR_BYTES > size_bytes:
        what = f"promises {tensors} tensors and {values} values, for which its {size_bytes} bytes have no room"
        return Flaw(what, _AGAIN)
    return None


def parts_count(data: bytes) -> int | None:
    """How many parts the model has by the values of one; None: these bytes do not say."""
    at = data.find(PART_MARK)
    number = data[at + len(PART_MARK) :][:2]
    return int.from_bytes(number, "little") if at >= 0 and len(number) == 2 else None


def model_parts(path: Path) -> tuple[Path, ...]:
    """All files of the model that begins with this one, in order; the file itself where it has no parts.

    Where `path` is not the first part of its model, it does not come first.
    """
    found = _PART.fullmatch(path.name)
    if found is None or not 0 < int(found["number"]) <= int(found["count"]):
        return (path,)
    count = int(found["count"])
    return tuple(path.with_name(f"{found['stem']}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1))
