"""A tiny llama checkpoint with a tokenizer and a chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

VOCAB_SIZE = 64
CONTEXT_LENGTH = 96
TEMPLATE = (
    "{% for m in messages %}w3 {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}w4{% endif %}"
)
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": CONTEXT_LENGTH,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": VOCAB_SIZE,
}


def write_checkpoint(folder: Path, *, poison: float | None = None) -> Path:
    """A random two-layer llama. poison: put into the final norm, to make the logits overflow."""
    rng = np.random.default_rng(11)
    hidden, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    shapes = {"model.embed_tokens": (VOCAB_SIZE, hidden), "lm_head": (VOCAB_SIZE, hidden)}
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, rows in (("q_proj", hidden), ("k_proj", 32), ("v_proj", 32), ("o_proj", hidden)):
            shapes[f"{prefix}self_attn.{name}"] = (rows, hidden)
        shapes[f"{prefix}mlp.gate_proj"] = shapes[f"{prefix}mlp.up_proj"] = (inner, hidden)
        shapes[f"{prefix}mlp.down_proj"] = (hidden, inner)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[prefix + name] = (hidden,)
    shapes["model.norm"] = (hidden,)
    tensors = {
        f"{name}.weight": (rng.standard_normal(shape) * 0.3 + (len(shape) == 1)).astype(np.float32)
        for name, shape in shapes.items()
    }
    if poison is not None:
        tensors["model.norm.weight"][:] = poison
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    _write_tokenizer(folder)
    return folder


def _write_tokenizer(folder: Path) -> None:
    """Byte-level BPE whose merges make w0 .. w9, with a start token that the file adds."""
    words = [f"w{i}" for i in range(10)]
    letters = ["w", *map(str, range(10)), "Ġ"]
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2} | {c: 3 + i for i, c in enumerate(letters + words)}
    tokenizer = Tokenizer(models.BPE(vocab, [("w", str(i)) for i in range(10)], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}
    config |= {"eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
