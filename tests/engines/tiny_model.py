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

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
WIDTH, LAYERS, HEADS, HEAD, FEED = 320, 2, 2, 64, 128
_GAP = 40.0
"""Distance of the wanted token's logit to all others: certain at temperature 1."""

_UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _INT32 = 4, 6, 7, 8, 9, 5
_ALIGN = 32

Tensor = tuple[str, tuple[int, ...], "array[float]"]


def write_tiny_model(path: Path, *, seed: int = 0) -> Path:
    """Write the model (3 MB) and return its path."""
    path.write_bytes(_render(_metadata(tokens()), tensors(seed=seed)))
    return path


def write_tiny_adapter(path: Path) -> Path:
    """Write a LoRA adapter of rank 1 for the model, with which it says something else than `SENTENCE`; 12 kB.

    The second word is certain by `_GAP` ahead of everything; the adapter makes the model end there instead.
    """
    names = tokens()
    size, first, end = len(names), names.index(_words()[0]), names.index("<|im_end|>")
    # The delta is b x a: from whatever the first word is embedded as, a logit of twice the gap for the end.
    a, b = array("f", bytes(4 * WIDTH)), array("f", bytes(4 * size))
    a[first], b[end] = 2 * _GAP / math.sqrt(WIDTH), 1.0
    metadata = [
        ("general.type", _string_value("adapter")),
        ("general.architecture", _string_value("llama")),
        ("adapter.type", _string_value("lora")),
        ("adapter.lora.alpha", struct.pack("<If", _FLOAT32, 1.0)),
    ]
    path.write_bytes(
        _render(metadata, [("output.weight.lora_a", (1, WIDTH), a), ("output.weight.lora_b", (size, 1), b)])
    )
    return path


def tokens() -> list[str]:
    """Every token, by its number: the special ones, the bytes, and the words of the sentence."""
    return [*SPECIAL, *(byte_letter(byte) for byte in range(256)), *_words()]


def _words() -> list[str]:
    return [word if n == 0 else "Ġ" + word for n, word in enumerate(SENTENCE.split(" "))]


def tensors(*, seed: int = 0) -> list[Tensor]:
    """Every tensor under llama.cpp's name, with its shape (rows first) and its numbers."""
    names, words, dice = tokens(), _words(), random.Random(seed)
    size, first, end = len(names), names.index(words[0]), names.index("<|im_end|>")
    successor = [first] * size
    for word, following in zip(words, [*words[1:], "<|im_end|>"], strict=True):
        successor[names.index(word)] = names.index(following)
    successor[end] = first
    # One-hot rows of length sqrt(width) have RMS 1: the norm in front of the output leaves them as they are.
    embedding, output = array("f", bytes(4 * size * WIDTH)), array("f", bytes(4 * size * WIDTH))
    for token in range(size):
        embedding[token * WIDTH + token] = math.sqrt(WIDTH)
        output[successor[token] * WIDTH + token] = _GAP / math.sqrt(WIDTH)
    ones = array("f", [1.0] * WIDTH)
    made: list[Tensor] = [
        ("token_embd.weight", (size, WIDTH), embedding),
        ("output_norm.weight", (WIDTH,), ones),
        ("output.weight", (size, WIDTH), output),
    ]
    shapes = {
        "attn_q": (HEADS * HEAD, WIDTH), "attn_k": (HEAD, WIDTH), "attn_v": (HEAD, WIDTH),
        "attn_output": (WIDTH, HEADS * HEAD), "ffn_gate": (FEED, WIDTH), "ffn_up": (FEED, WIDTH),
        "ffn_down": (WIDTH, FEED),
    }  # fmt: skip
    for layer in range(LAYERS):
        made += [(f"blk.{layer}.{norm}.weight", (WIDTH,), ones) for norm in ("attn_norm", "ffn_norm")]
        for name, (rows, columns) in shapes.items():
            noise = array("f", (dice.uniform(-0.02, 0.02) for _ in range(rows * columns)))
            made.append((f"blk.{layer}.{name}.weight", (rows, columns), noise))
    return made


def _metadata(names: list[str]) -> list[tuple[str, bytes]]:
    kinds = [3 if token in SPECIAL else 1 for token in names]
    return [
        ("general.architecture", _string_value("llama")),
        ("general.name", _string_value("tiny")),
        ("llama.context_length", _uint_value(CONTEXT)),
        ("llama.embedding_length", _uint_value(WIDTH)),
        ("llama.block_count", _uint_value(LAYERS)),
        ("llama.feed_forward_length", _uint_value(FEED)),
        ("llama.attention.head_count", _uint_value(HEADS)),
        ("llama.attention.head_count_kv", _uint_value(1)),
        ("llama.attention.key_length", _uint_value(HEAD)),
        ("llama.attention.value_length", _uint_value(HEAD)),
        ("llama.attention.layer_norm_rms_epsilon", struct.pack("<If", _FLOAT32, 1e-5)),
        ("llama.rope.dimension_count", _uint_value(HEAD)),
        ("llama.vocab_size", _uint_value(len(names))),
        ("tokenizer.ggml.model", _string_value("gpt2")),
        ("tokenizer.ggml.pre", _string_value("gpt-2")),
        ("tokenizer.ggml.tokens", _strings_value(names)),
        ("tokenizer.ggml.token_type", struct.pack(f"<IIQ{len(kinds)}i", _ARRAY, _INT32, len(kinds), *kinds)),
        # llama.cpp demands merges; this one joins two letters that no text has next to each other.
        ("tokenizer.ggml.merges", _strings_value([f"{byte_letter(0)} {byte_letter(1)}"])),
        ("tokenizer.ggml.bos_token_id", _uint_value(0)),
        ("tokenizer.ggml.eos_token_id", _uint_value(2)),
        ("tokenizer.ggml.add_bos_token", struct.pack("<I?", _BOOL, False)),
        ("tokenizer.chat_template", _string_value(TEMPLATE)),
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


def byte_letter(byte: int) -> str:
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
