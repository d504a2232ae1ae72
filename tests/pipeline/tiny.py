"""A tiny llama written by hand, without torch: every fact of it is the test's to change."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

__all__ = ["LEFT_OUT", "TEMPLATE", "Tensors", "make_config", "make_tensors", "write_llama"]

Tensors = dict[str, np.ndarray[Any, Any]]
LEFT_OUT = object()  # as a config value: leave the key out
TEMPLATE = "{% for m in messages %}w3 {{ m.content }} {% endfor %}w4"
GENERATION = {"bos_token_id": 1, "eos_token_id": [5, 2], "temperature": 0.6, "top_p": 0.9}


def make_config(**changes: Any) -> dict[str, Any]:
    """A two-layer llama's config.json with some keys changed."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "bos_token_id": 1,
        "eos_token_id": 3,
        "hidden_act": "silu",
        "hidden_size": 64,
        "head_dim": 16,
        "intermediate_size": 96,
        "max_position_embeddings": 128,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": 72,
        **changes,
    }
    return {key: value for key, value in config.items() if value is not LEFT_OUT}


def make_tensors(config: Mapping[str, Any], seed: int = 11) -> Tensors:
    """Random float32 weights of a config, norms away from 1."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    q_rows = config["num_attention_heads"] * config["head_dim"]
    kv_rows = config["num_key_value_heads"] * config["head_dim"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        path = f"model.layers.{layer}."
        shapes |= {
            f"{path}input_layernorm": (hidden,),
            f"{path}self_attn.q_proj": (q_rows, hidden),
            f"{path}self_attn.k_proj": (kv_rows, hidden),
            f"{path}self_attn.v_proj": (kv_rows, hidden),
            f"{path}self_attn.o_proj": (hidden, q_rows),
            f"{path}post_attention_layernorm": (hidden,),
            f"{path}mlp.gate_proj": (inner, hidden),
            f"{path}mlp.up_proj": (inner, hidden),
            f"{path}mlp.down_proj": (hidden, inner),
        }
    shapes["model.norm"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head"] = (config["vocab_size"], hidden)
    random = np.random.default_rng(seed)
    return {
        f"{name}.weight": (
            random.standard_normal(shape) * 0.2 + (1.0 if len(shape) == 1 else 0.0)
        ).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_llama(
    folder: Path,
    *,
    change: Callable[[Tensors], Tensors | None] | None = None,
    dtype: Any = np.float32,
    generation: Mapping[str, Any] | None = GENERATION,
    tensors: Tensors | None = None,
    **config_changes: Any,
) -> Path:
    """Write a checkpoint with a tokenizer and a chat template; returns the folder.

    change: alters the tensors in place, or returns others. tensors: taken instead of random ones.
    """
    config = make_config(**config_changes)
    if tensors is None:
        tensors = make_tensors(make_config(**{**_SIZES_KNOWN, **config}))
    tensors = dict(tensors)
    if change is not None:
        tensors = change(tensors) or tensors
    folder.mkdir(parents=True)
    stored = {name: tensor.astype(dtype) for name, tensor in tensors.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    _write_tokenizer(folder)
    return folder


# Where a test leaves a key out of the file, the weights still need its value.
_SIZES_KNOWN = {"head_dim": 16, "tie_word_embeddings": False}


def _write_tokenizer(folder: Path) -> None:
    """Byte-level BPE whose merges make w0 .. w9."""
    words = [f"w{i}" for i in range(10)]
    letters = ["w", *map(str, range(10)), "Ġ"]
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2} | {c: 3 + i for i, c in enumerate(letters + words)}
    tokenizer = Tokenizer(models.BPE(vocab, [("w", str(i)) for i in range(10)], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}
    config |= {"eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
