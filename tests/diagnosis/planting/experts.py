"""A tiny mixture of experts as mobius exports it: no exporter of ours writes experts yet."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.diagnosis.planting.rooms import write_tokenizer
from tests.twins.twin import randomize

__all__ = ["build_experts", "unpack_experts"]

_FACTS: dict[str, Any] = {
    "vocab_size": 251,
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "max_position_embeddings": 1024,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def build_experts(folder: Path) -> None:
    """The checkpoint: random weights, the same every time."""
    config = CONFIG_MAPPING["qwen3_moe"](**_FACTS)
    torch.manual_seed(17)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    randomize(model, 0.12)
    model.save_pretrained(folder)
    write_tokenizer(folder)


def unpack_experts(room: Path) -> Path:
    """mobius-onnx 0.1.0's float32 export of that checkpoint, which lies beside it as hf."""
    build_experts(room / "hf")
    archive = Path(__file__).parents[1] / "peers" / "experts" / "qwen3_moe-mobius-fp32.tar.xz"
    with tarfile.open(archive) as packed:
        packed.extractall(room, filter="data")
    return room / "qwen3_moe-mobius-fp32"
