"""Tiny twins: for every registered type a base config, and variants that flip each fact.

A case's facts are keyword arguments of transformers' config class, in the spelling that both
4.57 and 5.x take. `settings` narrows what is judged where a full forward is no truth for a
cached decode (frequencies that depend on the length).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import transformers
from packaging.version import Version

ALL_SETTINGS = ("prefill", "decode", "window", "left_padded_batch")
PREFILL_ONLY = ("prefill",)

# 4 query heads share 2 key/value heads; widths are no powers of two, so that a swapped or
# transposed dimension can't fit by chance.
SIZES: dict[str, Any] = {
    "vocab_size": 251,
    "hidden_size": 64,
    "intermediate_size": 88,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]


@dataclass(frozen=True)
class TwinCase:
    """One tiny model. since: the first transformers release that can build it."""

    model_type: str
    name: str
    facts: dict[str, Any] = field(hash=False)
    settings: tuple[str, ...] = ALL_SETTINGS
    since: str = "4.57"

    @property
    def id(self) -> str:
        """model_type-variant, as pytest shows it."""
        return f"{self.model_type}-{self.name}"


def _yarn(**more: Any) -> dict[str, Any]:
    return {
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 256,
            **more,
        }
    }


def _longrope(original: int, **more: Any) -> dict[str, Any]:
    pairs = 8
    return {
        "original_max_position_embeddings": original,
        "rope_scaling": {
            "rope_type": "longrope",
            "short_factor": [1.0 + 0.02 * i for i in range(pairs)],
            "long_factor": [1.5 + 0.25 * i for i in range(pairs)],
            "original_max_position_embeddings": original,
            **more,
        },
    }


def _phi3_longrope(original: int) -> dict[str, Any]:
    """4.57 takes exactly three fields here, and `type`."""
    facts = _longrope(original)
    lists = {name: facts["rope_scaling"][name] for name in ("short_factor", "long_factor")}
    return {**facts, "rope_scaling": {"type": "longrope", **lists}}


_LLAMA3 = {
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    }
}
_DYNAMIC = {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}

# model_type -> (facts of the base beyond SIZES, {variant: facts})
TWINS: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]]]] = {
    "llama": (
        {},
        {
            "attention_bias": {"attention_bias": True},
            "mlp_bias": {"mlp_bias": True},
            "tied": {"tie_word_embeddings": True},
            "head_dim": {"head_dim": 24},
            "head_dim_odd_eighths": {"head_dim": 20},
            "multi_head": {"num_key_value_heads": 4},
            "multi_query": {"num_key_value_heads": 1},
            "eps": {"rms_norm_eps": 1e-5},
            "theta": {"rope_theta": 500000.0},
            "gelu": {"hidden_act": "gelu"},
            "linear": {"rope_scaling": {"rope_type": "linear", "factor": 2.5}},
            "llama3": _LLAMA3,
            "yarn": _yarn(),
            "yarn_truncate": _yarn(truncate=False),
            "yarn_mscale": _yarn(mscale=0.8, mscale_all_dim=0.5),
            "yarn_betas": _yarn(beta_fast=16, beta_slow=2, attention_factor=1.2),
            "longrope_short": _longrope(1024),
            "dynamic_short": _DYNAMIC,
        },
    ),
    "mistral": (
        {"sliding_window": 40},
        {
            "full": {"sliding_window": None},
            "window_one_token": {"sliding_window": 1},
            "head_dim": {"head_dim": 32},
            "tied": {"tie_word_embeddings": True},
            # transformers 4.57 can't compute yarn where head_dim is left to its default.
            "yarn": {"head_dim": 16, **_yarn()},
        },
    ),
    "ministral": (
        {"sliding_window": 40, "head_dim": 16, "layer_types": MIXED},
        {
            "all_sliding": {"layer_types": ["sliding_attention"] * 3},
            "all_full": {"layer_types": ["full_attention"] * 3},
            "head_dim": {"head_dim": 32},
        },
    ),
    "qwen2": (
        {},
        {
            "window": {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1},
            "window_unused": {"use_sliding_window": False, "sliding_window": 40},
            "listed_layers": {
                "use_sliding_window": True,
                "sliding_window": 40,
                "layer_types": MIXED,
            },
            "tied": {"tie_word_embeddings": True},
            "yarn": _yarn(),
        },
    ),
    "qwen3": (
        {"head_dim": 32},
        {
            "attention_bias": {"attention_bias": True},
            "window": {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 2},
            "tied": {"tie_word_embeddings": True},
            "head_dim": {"head_dim": 48},
            "yarn": _yarn(),
        },
    ),
    "gemma": (
        {"head_dim": 32},
        {
            "attention_bias": {"attention_bias": True},
            "multi_query": {"num_key_value_heads": 1},
            "untied": {"tie_word_embeddings": False},
            "exact_gelu_name": {"hidden_act": "gelu_pytorch_tanh"},
        },
    ),
    "gemma2": (
        {"head_dim": 32, "sliding_window": 40, "query_pre_attn_scalar": 24},
        {
            "attention_bias": {"attention_bias": True},
            "no_score_cap": {"attn_logit_softcapping": None},
            "low_score_cap": {"attn_logit_softcapping": 2.0},
            "no_logit_cap": {"final_logit_softcapping": None},
            "low_logit_cap": {"final_logit_softcapping": 1.5},
            "listed_layers": {
                "layer_types": ["full_attention", "sliding_attention", "full_attention"]
            },
            "relu": {"hidden_activation": "relu"},
        },
    ),
    "gemma3_text": (
        {"head_dim": 32, "sliding_window": 40, "query_pre_attn_scalar": 24, "layer_types": MIXED},
        {
            "attention_bias": {"attention_bias": True},
            "logit_cap": {"final_logit_softcapping": 1.5},
            "pattern": {"layer_types": None, "sliding_window_pattern": 2},
            "thetas": {"rope_theta": 50000.0, "rope_local_base_freq": 500.0},
            "linear_on_full": {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
            "untied": {"tie_word_embeddings": False},
        },
    ),
    "phi": (
        {"num_key_value_heads": 4},
        {
            "qk_layernorm": {"qk_layernorm": True},
            "grouped": {"num_key_value_heads": 2},
            "partial": {"partial_rotary_factor": 0.25},
            "whole": {"partial_rotary_factor": 1.0},
            "eps": {"layer_norm_eps": 1e-6},
            "relu": {"hidden_act": "relu"},
        },
    ),
    "phi3": (
        {},
        {
            "window": {"sliding_window": 40},
            "longrope_short": _phi3_longrope(1024),
            "partial": {"partial_rotary_factor": 0.75},
            "tied": {"tie_word_embeddings": True},
            "multi_head": {"num_key_value_heads": 4},
        },
    ),
    "granite": (
        {
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.3,
            "logits_scaling": 2.0,
        },
        {
            "attention_bias": {"attention_bias": True},
            "mlp_bias": {"mlp_bias": True},
            "tied": {"tie_word_embeddings": True},
            "plain": {
                "embedding_multiplier": 1.0,
                "attention_multiplier": 1.0,
                "residual_multiplier": 1.0,
                "logits_scaling": 1.0,
            },
        },
    ),
    "smollm3": (
        {"num_hidden_layers": 4},
        {
            "interval": {"no_rope_layer_interval": 2},
            "listed": {"no_rope_layers": [0, 1, 0, 1]},
            "window": {
                "use_sliding_window": True,
                "sliding_window": 40,
                "no_rope_layer_interval": 2,
            },
            "attention_bias": {"attention_bias": True},
            "mlp_bias": {"mlp_bias": True},
            "untied": {"tie_word_embeddings": False},
        },
    ),
    "olmo": (
        {"num_key_value_heads": 4},
        {
            "clip": {"clip_qkv": 0.4},
            "grouped": {"num_key_value_heads": 2},
            "attention_bias": {"attention_bias": True},
            "tied": {"tie_word_embeddings": True},
        },
    ),
    "olmo2": (
        {},
        {
            "attention_bias": {"attention_bias": True},
            "multi_head": {"num_key_value_heads": 4},
            "eps": {"rms_norm_eps": 1e-6},
            "tied": {"tie_word_embeddings": True},
        },
    ),
    "nemotron": (
        {},
        {
            "attention_bias": {"attention_bias": True},
            "mlp_bias": {"mlp_bias": True},
            "partial": {"partial_rotary_factor": 0.25},
            "head_dim": {"head_dim": 32},
            "eps": {"norm_eps": 1e-6},
        },
    ),
    "stablelm": (
        {},
        {
            "qkv_bias": {"use_qkv_bias": True},
            "qk_layernorm": {"qk_layernorm": True},
            "parallel": {"use_parallel_residual": True},
            "partial": {"partial_rotary_factor": 0.5},
            "multi_head": {"num_key_value_heads": 4},
        },
    ),
    "starcoder2": (
        {},
        {
            "window": {"sliding_window": 40},
            "no_bias": {"use_bias": False},
            "untied": {"tie_word_embeddings": False},
            "eps": {"norm_epsilon": 1e-6},
        },
    ),
    "gpt2": (
        {},
        {
            "unscaled": {"scale_attn_weights": False},
            "scaled_by_layer": {"scale_attn_by_inverse_layer_idx": True},
            "width": {"n_inner": 72},
            "relu": {"activation_function": "relu"},
            "untied": {"tie_word_embeddings": False},
        },
    ),
    "gpt_neox": (
        {"hidden_size": 128},  # a quarter of 32 channels rotates; of 16, too few to show theta
        {
            "sequential": {"use_parallel_residual": False},
            "no_bias": {"attention_bias": False},
            "whole": {"rotary_pct": 1.0},
            "theta": {"rotary_emb_base": 500},
            "gelu_fast": {"hidden_act": "gelu_fast"},
            "tied": {"tie_word_embeddings": True},
        },
    ),
}

# Beyond the trained length a cached decode is another function than the full forward.
LONG = [
    TwinCase("llama", "longrope_long", _longrope(32), PREFILL_ONLY),
    TwinCase("llama", "longrope_factor", _longrope(32, attention_factor=1.1), PREFILL_ONLY),
    TwinCase("llama", "dynamic_long", {**_DYNAMIC, "max_position_embeddings": 64}, PREFILL_ONLY),
    TwinCase("phi3", "longrope_long", _phi3_longrope(32), PREFILL_ONLY),
    TwinCase(
        "llama",
        "proportional",
        {"rope_scaling": {"rope_type": "proportional", "partial_rotary_factor": 0.5}},
        since="5",
    ),
]

BASES = {
    model_type: TwinCase(model_type, "base", facts) for model_type, (facts, _) in TWINS.items()
}
CASES = [
    *BASES.values(),
    *(
        TwinCase(model_type, name, {**facts, **variant})
        for model_type, (facts, variants) in TWINS.items()
        for name, variant in variants.items()
    ),
    *LONG,
]
# What the installed transformers can build.
HERE = [case for case in CASES if Version(case.since) <= Version(transformers.__version__)]
