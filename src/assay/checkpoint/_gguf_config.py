"""config.json and generation_config.json, rebuilt from a GGUF file's metadata in HF's spelling.

Every `<architecture>.*` key is used, checked to be neutral, or refused; none is dropped.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from assay.checkpoint._gguf_cursor import GgufArray
from assay.checkpoint._gguf_header import GgufHeader
from assay.checkpoint._gguf_rope import read_rope_scaling
from assay.checkpoint._gguf_tensors import ARCHITECTURES

__all__ = ["END_NAMES", "build_config", "build_generation_config", "find_token_id"]

_USED = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",  # the embedding's rows decide; files of merged models have a stale number
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.finetuned",  # a remark about training
    "tensor_data_layout",  # a remark about the source
}
_USED_GEMMA3 = {
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "rope.freq_base_swa",
    "attn_logit_softcapping",
    "final_logit_softcapping",
}
_NEUTRAL = {"expert_count": 0, "expert_used_count": 0, "attention.causal": True}

# Names that end a turn or a text, where the metadata gives only one id (llama.cpp does the same).
END_NAMES = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|eom_id|>")


def build_config(header: GgufHeader) -> dict[str, Any]:
    """Build the config of a llama or gemma3 file; refuse every other architecture."""
    architecture = header.require("general.architecture", str)
    if architecture not in ARCHITECTURES:
        raise header.fail(
            f"has architecture {architecture!r}",
            f"one of {', '.join(ARCHITECTURES)} (GGUF support of others isn't built)",
            "Use the model's safetensors checkpoint instead.",
        )
    _check_keys(header, architecture)
    config = _build_common(header, architecture)
    config |= _build_llama(header, config) if architecture == "llama" else _build_gemma3(header)
    config["rope_scaling"] = read_rope_scaling(header, architecture, config)
    return config


def _check_keys(header: GgufHeader, architecture: str) -> None:
    used = _USED | (_USED_GEMMA3 if architecture == "gemma3" else set())
    for key, value in header.metadata.items():
        name = key.removeprefix(f"{architecture}.")
        if name == key or name in used:
            continue
        if name in _NEUTRAL and value == _NEUTRAL[name]:
            continue
        raise header.fail(
            f"metadata {key} is {value!r}, which this reader doesn't understand",
            "only keys whose meaning is known, so that nothing is dropped silently",
            "Use the model's safetensors checkpoint instead, or report the key.",
        )


def _build_common(header: GgufHeader, architecture: str) -> dict[str, Any]:
    def count(name: str) -> int:
        return _read_count(header, f"{architecture}.{name}")

    hidden_size, num_heads = count("embedding_length"), count("attention.head_count")
    num_kv_heads = f"{architecture}.attention.head_count_kv"
    key_length = f"{architecture}.attention.key_length"
    head_dim = (
        count("attention.key_length") if key_length in header.metadata else hidden_size // num_heads
    )
    for name in ("attention.value_length", "rope.dimension_count"):
        value = header.get(f"{architecture}.{name}", int, head_dim)
        if value != head_dim:
            raise header.fail(
                f"metadata {architecture}.{name} is {value}",
                f"the head size {head_dim}: partial rotary and split head sizes aren't read",
            )
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None:
        raise header.fail("has no tensor token_embd.weight", "an embedding table")
    ids = {
        f"{name}_token_id": find_token_id(header, key)
        for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    return {
        "vocab_size": embedding.num_rows,
        "hidden_size": hidden_size,
        "intermediate_size": count("feed_forward_length"),
        "num_hidden_layers": count("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": (
            count("attention.head_count_kv") if num_kv_heads in header.metadata else num_heads
        ),
        "head_dim": head_dim,
        "max_position_embeddings": count("context_length"),
        "rms_norm_eps": _read_real(header, f"{architecture}.attention.layer_norm_rms_epsilon"),
        "rope_theta": _read_real(header, f"{architecture}.rope.freq_base", 10000.0),
        "attention_bias": any(".attn_q.bias" in name for name in header.tensors),
        "tie_word_embeddings": "output.weight" not in header.tensors,
    } | {key: value for key, value in ids.items() if value is not None}


def _build_llama(header: GgufHeader, config: dict[str, Any]) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "mlp_bias": any(".ffn_down.bias" in name for name in header.tensors),
    }


def _build_gemma3(header: GgufHeader) -> dict[str, Any]:
    """Gemma 3's text part. What the file leaves out is fixed in llama.cpp (src/models/gemma3.cpp):
    every sixth layer is global, local layers have rope base 10,000, and the 27B model (62 layers)
    scales queries by hidden_size / heads, the others by the head size.
    """
    num_layers = _read_count(header, "gemma3.block_count")
    hidden_size = _read_count(header, "gemma3.embedding_length")
    num_heads = _read_count(header, "gemma3.attention.head_count")
    is_27b = num_layers == 62
    key_length = header.get("gemma3.attention.key_length", int, hidden_size // num_heads)
    return {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": hidden_size // num_heads if is_27b else key_length,
        "sliding_window": _read_count(header, "gemma3.attention.sliding_window"),
        "layer_types": _read_layer_types(header, num_layers),
        "rope_local_base_freq": _read_real(header, "gemma3.rope.freq_base_swa", 10000.0),
        "attn_logit_softcapping": _read_softcap(header, "gemma3.attn_logit_softcapping"),
        "final_logit_softcapping": _read_softcap(header, "gemma3.final_logit_softcapping"),
    }


def _read_layer_types(header: GgufHeader, num_layers: int) -> list[str]:
    """sliding_window_pattern is absent, one period, or one flag per layer (true: sliding)."""
    key = "gemma3.attention.sliding_window_pattern"
    pattern = header.metadata.get(key, 6)
    if isinstance(pattern, GgufArray):
        flags = header.numbers(key)
        if flags is None or len(flags) != num_layers:
            raise header.fail(f"metadata {key} has {pattern.count} entries", f"{num_layers}")
        is_sliding = [bool(flag) for flag in flags]
    else:
        period = _read_count(header, key) if key in header.metadata else 6
        is_sliding = [bool((index + 1) % period) for index in range(num_layers)]
    return ["sliding_attention" if sliding else "full_attention" for sliding in is_sliding]


def _read_softcap(header: GgufHeader, key: str) -> float | None:
    return _read_real(header, key) if key in header.metadata else None


def _read_count(header: GgufHeader, key: str) -> int:
    """Read a positive number, or one number repeated for every layer."""
    value = header.metadata.get(key)
    if isinstance(value, GgufArray):
        values = set(np.asarray(header.numbers(key)).tolist())
        value = values.pop() if len(values) == 1 else sorted(values)
    if type(value) is not int or not 0 < value < 1 << 31:
        raise header.fail(
            f"metadata {key} is {'missing' if value is None else repr(value)}",
            "one positive number, the same for all layers",
        )
    return value


def _read_real(header: GgufHeader, key: str, default: float | None = None) -> float:
    """Read a float32 as the decimal that was meant: 1e-06, not 9.999999974752427e-07."""
    value = header.require(key, float) if default is None else header.get(key, float, default)
    if not math.isfinite(value) or value <= 0:
        raise header.fail(f"metadata {key} is {value!r}", "a positive number")
    shortest = float(str(np.float32(value)))
    return shortest if np.float32(value) == value else value


def find_token_id(header: GgufHeader, name: str) -> int | None:
    """Look up `tokenizer.ggml.<name>_token_id`, checked against the embedding's rows."""
    token_id: int | None = header.get(f"tokenizer.ggml.{name}_token_id", int)
    num_rows = header.tensors["token_embd.weight"].num_rows
    if token_id is not None and not 0 <= token_id < num_rows:
        raise header.fail(
            f"metadata tokenizer.ggml.{name}_token_id is {token_id}", f"0 to {num_rows - 1}"
        )
    return token_id


def build_generation_config(header: GgufHeader, config: dict[str, Any]) -> dict[str, Any]:
    """Build bos, pad and all eos ids: eos, end of turn, end of message."""
    ends = [find_token_id(header, name) for name in ("eos", "eot", "eom")]
    tokens = header.strings("tokenizer.ggml.tokens") or []
    ends += [token_id for token_id, token in enumerate(tokens) if token in END_NAMES]
    eos = list(dict.fromkeys(token_id for token_id in ends if token_id is not None))
    generation: dict[str, Any] = {
        key: config[key] for key in ("bos_token_id", "pad_token_id") if key in config
    }
    if eos:
        generation["eos_token_id"] = eos[0] if len(eos) == 1 else eos
    return generation
