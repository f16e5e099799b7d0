"""Writes a tiny chat model that a genuine llama.cpp serves, with nothing but the standard library.

    python -m tests.engines.tiny_model FILE.gguf

The layers are small random numbers, so every kernel really runs; the embedding is one-hot and the output matrix is a
table of successors, so that the model answers `SENTENCE` to everything, at any usual temperature, and stops. Words of
the sentence are tokens that are only ever generated; a prompt is read byte by byte, which needs no merges.
"""

import math
import random
import struct
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path

SENTENCE = "Hello! This tiny test model runs inside the genuine engine on your own machine."
CONTEXT = 2048

_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_WIDTH, _LAYERS, _HEADS, _HEAD, _FEED = 320, 2, 2, 64, 128
_GAP = 40.0
"""Distance of the wanted token's logit to all others: certain at temperature 1."""

_UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _INT32 = 4, 6, 7, 8, 9, 5
_ALIGN = 32

Tensor = tuple[str, tuple[int, ...], "array[float]"]


def write_tiny_model(path: Path, *, seed: int = 0) -> Path:
    """Write the model (3 MB) and return its path."""
    words = [word if n == 0 else "Ġ" + word for n, word in enumerate(SENTENCE.split(" "))]
    tokens = [*_SPECIAL, *(_byte_letter(byte) for byte in range(256)), *words]
    path.write_bytes(_render(_metadata(tokens), _tensors(tokens, words, random.Random(seed))))
    return path


def _tensors(tokens: list[str], words: list[str], dice: random.Random) -> list[Tensor]:
    size, first, end = len(tokens), tokens.index(words[0]), tokens.index("<|im_end|>")
    successor = [first] * size
    for word, following in zip(words, [*words[1:], "<|im_end|>"], strict=True):
        successor[tokens.index(word)] = tokens.index(following)
    successor[end] = first
    # One-hot rows of length sqrt(width) have RMS 1: the norm in front of the output leaves them as they are.
    embedding, output = array("f", bytes(4 * size * _WIDTH)), array("f", bytes(4 * size * _WIDTH))
    for token in range(size):
        embedding[token * _WIDTH + token] = math.sqrt(_WIDTH)
        output[successor[token] * _WIDTH + token] = _GAP / math.sqrt(_WIDTH)
    ones = array("f", [1.0] * _WIDTH)
    tensors: list[Tensor] = [
        ("token_embd.weight", (size, _WIDTH), embedding),
        ("output_norm.weight", (_WIDTH,), ones),
        ("output.weight", (size, _WIDTH), output),
    ]
    shapes = {
        "attn_q": (_HEADS * _HEAD, _WIDTH), "attn_k": (_HEAD, _WIDTH), "attn_v": (_HEAD, _WIDTH),
        "attn_output": (_WIDTH, _HEADS * _HEAD), "ffn_gate": (_FEED, _WIDTH), "ffn_up": (_FEED, _WIDTH),
        "ffn_down": (_WIDTH, _FEED),
    }  # fmt: skip
    for layer in range(_LAYERS):
        tensors += [(f"blk.{layer}.{norm}.weight", (_WIDTH,), ones) for norm in ("attn_norm", "ffn_norm")]
        for name, (rows, columns) in shapes.items():
            noise = array("f", (dice.uniform(-0.02, 0.02) for _ in range(rows * columns)))
            tensors.append((f"blk.{layer}.{name}.weight", (rows, columns), noise))
    return tensors


def _metadata(tokens: list[str]) -> list[tuple[str, bytes]]:
    kinds = [3 if token in _SPECIAL else 1 for token in tokens]
    return [
        ("general.architecture", _string_value("llama")),
        ("general.name", _string_value("tiny")),
        ("llama.context_length", _uint_value(CONTEXT)),
        ("llama.embedding_length", _uint_value(_WIDTH)),
        ("llama.block_count", _uint_value(_LAYERS)),
        ("llama.feed_forward_length", _uint_value(_FEED)),
        ("llama.attention.head_count", _uint_value(_HEADS)),
        ("llama.attention.head_count_kv", _uint_value(1)),
        ("llama.attention.key_length", _uint_value(_HEAD)),
        ("llama.attention.value_length", _uint_value(_HEAD)),
        ("llama.attention.layer_norm_rms_epsilon", struct.pack("<If", _FLOAT32, 1e-5)),
        ("llama.rope.dimension_count", _uint_value(_HEAD)),
        ("llama.vocab_size", _uint_value(len(tokens))),
        ("tokenizer.ggml.model", _string_value("gpt2")),
        ("tokenizer.ggml.pre", _string_value("gpt-2")),
        ("tokenizer.ggml.tokens", _strings_value(tokens)),
        ("tokenizer.ggml.token_type", struct.pack(f"<IIQ{len(kinds)}i", _ARRAY, _INT32, len(kinds), *kinds)),
        # llama.cpp demands merges; this one joins two letters that no text has next to each other.
        ("tokenizer.ggml.merges", _strings_value([f"{_byte_letter(0)} {_byte_letter(1)}"])),
        ("tokenizer.ggml.bos_token_id", _uint_value(0)),
        ("tokenizer.ggml.eos_token_id", _uint_value(2)),
        ("tokenizer.ggml.add_bos_token", struct.pack("<I?", _BOOL, False)),
        ("tokenizer.chat_template", _string_value(_TEMPLATE)),
    ]


def _render(metadata: Sequence[tuple[str, bytes]], tensors: Sequence[Tensor]) -> bytes:
    """GGUF version 3: header, metadata, tensor table, aligned data. Dimensions are written innermost first."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_string(key) + value for key, value in metadata)
    data = b""
    for name, shape, values in tensors:
        head += _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, len(data))
        data += values.tobytes()
        data += bytes(-len(data) % _ALIGN)
    return head + bytes(-len(head) % _ALIGN) + data


def _byte_letter(byte: int) -> str:
    """GPT-2's printable letter for a byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in printable:
        return chr(byte)
    return chr(256 + [other for other in range(256) if other not in printable].index(byte))


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _string_value(text: str) -> bytes:
    return struct.pack("<I", _STRING) + _string(text)


def _strings_value(texts: Sequence[str]) -> bytes:
    return struct.pack("<IIQ", _ARRAY, _STRING, len(texts)) + b"".join(map(_string, texts))


def _uint_value(number: int) -> bytes:
    return struct.pack("<II", _UINT32, number)


if __name__ == "__main__":
    write_tiny_model(Path(sys.argv[1]))
