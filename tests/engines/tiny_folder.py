"""The tiny model of `tiny_model` as vLLM and SGLang take it: a folder of safetensors, and a LoRA adapter for it.

    python -m tests.engines.tiny_folder FOLDER

The same weights and tokens, so the same sentence. The adapter knows the last layer's activation at the end of the
prompt and adds a word to what the model sees there: with it the answer begins after `LORA_AFTER`.
"""

import json
import math
import struct
import sys
from array import array
from collections.abc import Mapping
from pathlib import Path

from tests.engines import tiny_model as tiny

LORA_AFTER = "model"
LORA_SENTENCE = tiny.SENTENCE.partition(f" {LORA_AFTER}")[2]
"""What an answer is with the adapter; it begins with a space."""

_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_RANK = 8
_PUSH = 2.0
"""How many times stronger than the prompt's last token the added word is."""

Tensors = Mapping[str, tuple[tuple[int, ...], "array[float]"]]


def write_tiny_folder(folder: Path) -> Path:
    """Write the model (3 MB) and return its folder."""
    folder.mkdir(parents=True)
    tokens = tiny.tokens()
    tensors = {_rename(name): (shape, data) for name, shape, data in tiny.tensors()}
    _write_safetensors(folder / "model.safetensors", tensors)
    end, pad = tokens.index("<|im_end|>"), tokens.index("<|endoftext|>")
    special = {"bos_token_id": pad, "eos_token_id": end, "pad_token_id": pad}
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": tiny.WIDTH,
        "num_hidden_layers": tiny.LAYERS, "num_attention_heads": tiny.HEADS, "num_key_value_heads": 1,
        "head_dim": tiny.HEAD, "intermediate_size": tiny.FEED, "vocab_size": len(tokens),
        "max_position_embeddings": tiny.CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32",
    }  # fmt: skip
    words = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>", "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>", "model_max_length": tiny.CONTEXT, "clean_up_tokenization_spaces": False,
        "chat_template": tiny.TEMPLATE,
    }  # fmt: skip
    _write_json(folder / "config.json", config | special)
    _write_json(folder / "generation_config.json", special)
    _write_json(folder / "tokenizer.json", _tokenizer(tokens))
    _write_json(folder / "tokenizer_config.json", words)
    return folder


def write_tiny_lora(folder: Path) -> Path:
    """Write the adapter (40 kB) and return its folder."""
    folder.mkdir(parents=True)
    tensors = {name: data for name, _, data in tiny.tensors()}
    tokens, last = tiny.tokens(), f"blk.{tiny.LAYERS - 1}."
    # One-hot embeddings: a matrix times that of token n is the n-th column, times the embedding's length.
    at, length = tokens.index(tiny.byte_letter(ord("\n"))), math.sqrt(tiny.WIDTH)
    gate, up = (
        [tensors[f"{last}{name}.weight"][row * tiny.WIDTH + at] * length for row in range(tiny.FEED)]
        for name in ("ffn_gate", "ffn_up")
    )
    seen = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up, strict=True)]
    strength = sum(value * value for value in seen)
    down, out = array("f", bytes(4 * _RANK * tiny.FEED)), array("f", bytes(4 * tiny.WIDTH * _RANK))
    down[: tiny.FEED] = array("f", [value / strength for value in seen])
    out[tokens.index(f"Ġ{LORA_AFTER}") * _RANK] = _PUSH * length
    prefix = f"base_model.model.model.layers.{tiny.LAYERS - 1}.mlp.down_proj."
    _write_safetensors(
        folder / "adapter_model.safetensors",
        {
            f"{prefix}lora_A.weight": ((_RANK, tiny.FEED), down),
            f"{prefix}lora_B.weight": ((tiny.WIDTH, _RANK), out),
        },
    )
    adapter = {
        "peft_type": "LORA", "base_model_name_or_path": "tiny", "r": _RANK, "lora_alpha": _RANK, "lora_dropout": 0.0,
        "target_modules": ["down_proj"], "task_type": "CAUSAL_LM", "bias": "none", "use_rslora": False,
        "modules_to_save": None, "fan_in_fan_out": False,
    }  # fmt: skip
    _write_json(folder / "adapter_config.json", adapter)
    return folder


def _rename(name: str) -> str:
    """From llama.cpp's name of a tensor to that of transformers."""
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{_NAMES[parts[2]]}.weight"
    return f"{_TOP[parts[0]]}.weight"


def _tokenizer(tokens: list[str]) -> dict[str, object]:
    """Bytes, no merges, and whole words that nothing but the model ever says."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [
        {"id": number, "content": token, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for number, token in enumerate(tokens) if token in tiny.SPECIAL
    ]  # fmt: skip
    model: dict[str, object] = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": {token: number for number, token in enumerate(tokens)}, "merges": [],
    }  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level, "model": model,
    }  # fmt: skip


def _write_safetensors(path: Path, tensors: Tensors) -> None:
    """The format: length of the header, the header as JSON, and the numbers one after the other."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (shape, data) in tensors.items():
        size = 4 * len(data)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data.tobytes() for _, data in tensors.values()))


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1))


if __name__ == "__main__":
    write_tiny_folder(Path(sys.argv[1]) / "model")
    write_tiny_lora(Path(sys.argv[1]) / "lora")
