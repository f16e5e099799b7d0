"""What the head of a file says, as a table: fine ones, broken ones, and what people save under that name instead."""

import struct
from pathlib import Path

import pytest

from engines.gguf import HEAD_BYTES, PART_MARK, judge_head, judge_kind, model_parts, parts_count


def head(version: int = 3, tensors: int = 2, values: int = 4, order: str = "<") -> bytes:
    return b"GGUF" + struct.pack(f"{order}IQQ", version, tensors, values)


FINE = head() + bytes(24 * 2 + 13 * 4)
SAFETENSORS = struct.pack("<Q", 40) + b'{"__metadata__":{"format":"pt"}}'


@pytest.mark.parametrize("data", [FINE, head(version=2) + bytes(200), head(version=9) + bytes(200), head(3, 0, 0)])
def test_a_fine_head_is_left_to_the_engine(data: bytes) -> None:
    assert judge_head(data[:HEAD_BYTES], len(data)) is None
    assert judge_kind(data[:HEAD_BYTES]) is None


@pytest.mark.parametrize(
    ("data", "said", "advice"),
    [
        (b"", "is empty", "again"),
        (b"GGU", "begins with b'GGU'", "again"),
        (b"GGUF", "ends after 4 bytes", "again"),
        (FINE[:23], "ends after 23 bytes", "again"),
        (FINE[:-1], "promises 2 tensors and 4 values", "again"),
        (head(tensors=1 << 60) + bytes(200), "promises", "again"),
        (head(tensors=(1 << 64) - 1, values=(1 << 64) - 1) + bytes(200), "promises", "again"),
        (b"GGUF" + bytes(100), "version 0", "convert"),
        (head(version=1) + bytes(200), "version 1, which llama.cpp does not read", "convert"),
        (head(order=">") + bytes(200), "big-endian", "little-endian"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "pointer of git-lfs", "git lfs pull"),
        (b"<!DOCTYPE html>\n<html>", "web page", "login"),
        (b"\n  <HTML lang=en>", "web page", "login"),
        (b"\xef\xbb\xbf<html>", "web page", "login"),
        (b'{"error": "Unauthorized"}', "is JSON", "again"),
        (SAFETENSORS, "safetensors", "convert"),
        (b"PK\x03\x04\0\0\0\0\0\0", "zip archive", "convert"),
        (b"\x1f\x8b\x08\0", "gzip", "gunzip"),
        (b"tjgg\x03\0\0\0", "older than GGUF", "convert"),
        (bytes(64), r"begins with b'\x00\x00\x00\x00'", "again"),
    ],
    ids=range(20),
)
def test_a_flaw_is_named_with_what_to_do(data: bytes, said: str, advice: str) -> None:
    flaw = judge_head(data[:HEAD_BYTES], len(data))
    assert flaw is not None
    assert said in flaw.what and advice in flaw.hint


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("m.gguf", ["m.gguf"]),
        ("m-00001-of-00001.gguf", ["m-00001-of-00001.gguf"]),
        ("m-00001-of-00002.gguf", ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]),
        ("m-00002-of-00002.gguf", ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]),
        ("m-00000-of-00002.gguf", ["m-00000-of-00002.gguf"]),
        ("m-00003-of-00002.gguf", ["m-00003-of-00002.gguf"]),
        ("m-1-of-2.gguf", ["m-1-of-2.gguf"]),
        ("m-00001-of-00002.bin", ["m-00001-of-00002.bin"]),
    ],
)
def test_the_parts_of_a_model(name: str, parts: list[str]) -> None:
    assert model_parts(Path("/w") / name) == tuple(Path("/w") / part for part in parts)


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", None),
        (b"x" + PART_MARK, None),
        (b"x" + PART_MARK + b"\3", None),
        (b"x" + PART_MARK + b"\3\0", 3),
        (PART_MARK + b"\1\1y", 257),
    ],
)
def test_what_a_part_says_of_the_others(data: bytes, count: int | None) -> None:
    assert parts_count(data) == count
