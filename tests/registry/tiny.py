"""Tiny real instances of every language model that the installed transformers has.

A config is built from its class's own defaults with every size made small; what a type needs
besides stands in `FACTS`. No other size of a model equals its number of experts.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import transformers
from packaging.version import Version
from transformers import AutoModel, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.models.auto import configuration_auto, modeling_auto

__all__ = [
    "CAUSAL_TYPES",
    "CONFIGS",
    "EXPERT_TYPES",
    "NUM_EXPERTS",
    "OLD",
    "SPARSE",
    "UNBUILT",
    "VERSION",
    "build",
    "build_as",
    "build_dense",
    "find_causal_classes",
    "find_config_class",
    "has_type",
    "list_dense",
    "make_config",
]

transformers.logging.set_verbosity_error()
warnings.filterwarnings("ignore", module="transformers")

NUM_EXPERTS = 6
MOST_PARAMETERS = 12_000_000
VERSION = Version(transformers.__version__)
OLD = Version("5") > VERSION

SIZES: dict[str, int] = {
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), NUM_EXPERTS),
    **dict.fromkeys(("moe_num_experts", "num_expert"), NUM_EXPERTS),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embedding_size", "embed_dim"), 32),
    **dict.fromkeys(("hidden_dim", "text_hidden_size", "out_hidden_size", "dim_model"), 32),
    **dict.fromkeys(("image_size", "vision_hidden_size", "hidden_size_per_layer_input"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "ffn_hidden_size", "dim_ff", "d_inner"), 24),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "intermediate_dim", "d_ff"), 24),
    **dict.fromkeys(("dense_intermediate_size", "intermediate_size_mlp"), 28),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 20),
    **dict.fromkeys(("expert_ffn_hidden_size", "share_expert_dim"), 20),
    **dict.fromkeys(("shared_intermediate_size", "shared_experts_intermediate_size"), 16),
    **dict.fromkeys(("moe_shared_expert_intermediate_size", "router_hidden_size"), 16),
    **dict.fromkeys(("moe_hidden_size",), 40),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("swa_num_attention_heads", "swa_num_key_value_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok", "moe_topk", "moe_k"), 2),
    **dict.fromkeys(("num_experts_per_token", "top_k_experts"), 2),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers", "depth"), 4),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_codebooks", "index_n_heads"), 2),
    **dict.fromkeys(("head_dim", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("patch_size", "global_head_dim", "swa_head_dim"), 8),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "index_head_dim", "moe_latent_size"), 16),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_group"), 1),
    **dict.fromkeys(("vocab_size", "max_position_embeddings", "vocab_size_per_layer_input"), 128),
    "zero_expert_num": 3,
}
_SPECIAL_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id")

_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8}
_EQUAL_HEADS = {"num_key_value_heads": 4}
_GROUPS = {"n_group": 2, "topk_group": 1, "num_experts_per_tok": 2}
_MROPE = {"rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]}}
_GEMMA4 = {
    "enable_moe_block": True,
    "num_experts": NUM_EXPERTS,
    "top_k_experts": 2,
    "moe_intermediate_size": 20,
}
_QWEN4 = {
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 8,
    "indexer_budget": 8,
    "indexer_compress_ratio": 4,
    "ple_embed_dim": 16,
    "ngram_vocab_size_base": 64,
    "split_ngram_parts": 2,
    "make_ngram_vocab_size_divisible_by": 8,
    "hc_lowrank": 4,
}
_DBRX = {
    "moe_num_experts": NUM_EXPERTS,
    "ffn_hidden_size": 24,
    "moe_top_k": 2,
    "hidden_size": 32,
    "moe_normalize_expert_weights": 2.0,
}
_DOTS3 = {
    **_EQUAL_HEADS,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 4,
    "swa_q_lora_rank": 16,
    "swa_kv_lora_rank": 16,
    "swa_head_dim": 16,
    "swa_qk_nope_head_dim": 8,
    "swa_v_head_dim": 8,
}
_LATENT_HEADS = {**_EQUAL_HEADS, "qk_rope_head_dim": 0}
_INKLING = {"unpadded_vocab_size": 100, "dense_mlp_idx": 1}
FACTS: dict[str, dict[str, Any]] = {
    "bamba": _MAMBA2,
    "cohere2_moe": {"num_shared_experts": 1},
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}
    },
    "dbrx": {"attn_config": {"rope_theta": 10000.0}, "ffn_config": {**_DBRX}},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"] * 2, "num_experts_per_tok": 2},
    "deepseek_v2": {**_GROUPS, "topk_method": "group_limited_greedy", "first_k_dense_replace": 1},
    "deepseek_v3": {**_GROUPS, "first_k_dense_replace": 1},
    "qwen3_moe": {"mlp_only_layers": [0]},  # a dense layer beside the sparse ones
    "diffusion_gemma": {"text_config": _GEMMA4},
    "dots1": {
        "n_shared_experts": 2,
        "n_routed_experts": NUM_EXPERTS,
        "first_k_dense_replace": 1,
        "num_experts_per_tok": 2,
    },
    "dots3_note": {
        "text_config": {**_DOTS3, "num_hidden_layers": 4},
        "vision_config": {
            **_EQUAL_HEADS,
            "num_hidden_layers": 42,
            "adapter_in_dim": 32,
            "adapter_out_dim": 32,
        },
        "audio_config": {"adapter_input_size": 32, "adapter_out_dim": 32},
    },
    "dots3_note_text": _DOTS3,
    "ernie4_5_vl_moe_text": {
        "moe_intermediate_size": [20, 12],
        "rope_parameters": {**_ROPE, "mrope_section": [1, 1, 2]},
    },
    "gemma3n_text": {
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "gemma4_text": _GEMMA4,
    "glm5_next_text": _LATENT_HEADS,
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoe_swa": {"shared_intermediate_size": 16},
    "granitemoeshared": {"shared_intermediate_size": 16},
    "granitemoehybrid": {**_MAMBA2, "layer_types": ["mamba", "attention"] * 2},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8, "moe_topk": 2},
    "hy_v4_vl_text": {"rope_parameters": {**_ROPE, "mrope_section": [2, 1, 1]}},
    "inkling2_loop_text": _INKLING,
    "inkling2_text": _INKLING,
    "inkling_text": _INKLING,
    "laguna": {"moe_router_logit_softcapping": 0.5, "moe_routed_scaling_factor": 1.5},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "llama4_text": {"moe_layers": [1, 3]},
    "mamba2": {"num_heads": 4, "head_dim": 16},
    "ministral": {"head_dim": 8},
    "nemotron": {"num_key_value_heads": 2},
    "nllb-moe": {"encoder_sparse_step": 1, "decoder_sparse_step": 1},
    "nemotron_h": {"moe_latent_size": 16},
    "qwen4_exp_text": _QWEN4,
    "qwen3_omni_moe_talker_text": {"shared_expert_intermediate_size": 16},
    "reformer": {"is_decoder": True, "axial_pos_embds_dim": (16, 16)},
    "step3p5": {
        "swiglu_limits": [0.1, 0.1, 0.1, 0.1],
        "swiglu_limits_shared": [0.0, 0.0, 0.0, 0.2],
    },
    "zamba": {"num_hidden_layers": 6, "layers_block_type": ["mamba", "mamba", "hybrid"] * 2},
    "zaya": {"num_experts_per_tok": 1},
    "zamba2": {"layer_types": ["mamba", "hybrid"] * 2},
}
if OLD:
    FACTS |= {
        "dbrx": {"ffn_config": {key: _DBRX[key] for key in _DBRX if key != "hidden_size"}},
        "gpt_oss": {"layer_types": ["full_attention"] * 4},
        "mllama": {"text_config": {"rope_scaling": {"rope_type": "default"}}},
        "qwen3_vl_moe_text": _MROPE,
        "qwen3_omni_moe_text": _MROPE,
        "qwen3_omni_moe_talker_text": {**_MROPE, "shared_expert_intermediate_size": 16},
        "transfo-xl": {"cutoffs": [40, 80], "d_embed": 32, "div_val": 1},
        "zamba2": {"layers_block_type": ["mamba", "hybrid"] * 2},
    }
    FACTS["deepseek_v2"] = {"first_k_dense_replace": 1, "num_experts_per_tok": 2}

# What makes every layer of a type with experts dense.
DENSE: dict[str, dict[str, Any]] = {
    "deepseek_v3": {"first_k_dense_replace": 4},
    "gemma4_text": {"enable_moe_block": False},
    "granitemoehybrid": {**FACTS["granitemoehybrid"], "num_local_experts": 0},
    "llama4_text": {"moe_layers": []},
    "qwen3_moe": {"mlp_only_layers": [0, 1, 2, 3]},
}

# What makes a type sparse that is dense by default.
SPARSE: dict[str, dict[str, Any]] = {
    "doge": {"is_moe": True, "num_experts": 36, "num_experts_per_tok": 2},
}

# Models without a class in the automatic mappings: module, class.
_CLASSES = {
    "qwen3_omni_moe_thinker": ("qwen3_omni_moe", "Qwen3OmniMoeThinkerForConditionalGeneration"),
    "qwen3_omni_moe_text": ("qwen3_omni_moe", "Qwen3OmniMoeThinkerTextModel"),
    "qwen3_omni_moe_talker_text": ("qwen3_omni_moe", "Qwen3OmniMoeTalkerModel"),
    "ernie4_5_vl_moe_text": ("ernie4_5_vl_moe", "Ernie4_5_VLMoeTextModel"),
    "step3p5": ("step3p7", "Step3p7TextModel"),
    "unlimited_ocr_text": ("unlimited_ocr", "UnlimitedOcrTextModel"),
    "deepseek_ocr2_text": ("deepseek_ocr2", "DeepseekOcr2TextModel"),
}

CAUSAL_TYPES: tuple[str, ...] = tuple(sorted(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
_NEEDS_DATA = ("apertus",)  # can't be constructed on the meta device by transformers 4
# In transformers 4 these are mapped to a class that takes the text part's config.
_TEXT_ONLY = ("emu3", "llama4", "mllama") if OLD else ()

# What can't be built here: a part of the error, and why it doesn't matter or can't be helped.
_NOT_ALONE = "it has no size of its own: its config needs those of three other models, all dense"
UNBUILT: dict[str, tuple[str, str]] = {
    "gemma3n": ("PIL", "needs a package that the tests don't install; gemma3n_text is built"),
    "musicgen": ("text_encoder" if OLD else "dropout", _NOT_ALONE),
    "musicgen_melody": ("text_encoder" if OLD else "dropout", _NOT_ALONE),
    "qwen3_omni_moe": (
        "Unrecognized configuration class",
        "no class for the whole in the automatic mappings; thinker and talker are built",
    ),
}
if OLD:
    UNBUILT |= {
        "aria": ("'dict' object", "4.57 leaves its text config a dict; aria_text is built"),
        "phi4_multimodal": ("image_token_id", "its class needs image and audio configs; dense"),
        "qdqbert": ("pytorch-quantization", "needs a package that is no longer published; dense"),
    }
else:
    UNBUILT |= {
        "inkling_mm_model": ("scipy", "needs a package; inkling_text is built"),
        "gemma4_assistant": (
            "hidden_size_per_layer_input must be 0",
            "its config class refuses its own defaults; gemma4_text is built",
        ),
    }
CONFIGS = configuration_auto.CONFIG_MAPPING


def has_type(model_type: str) -> bool:
    """Whether the installed transformers has a config class for a type."""
    return model_type in CONFIGS or find_config_class(model_type) is not None


@functools.cache
def find_config_class(model_type: str) -> Any:
    """The config class of a type, also of one that is only part of another, in no mapping."""
    if model_type in CONFIGS:
        return CONFIGS[model_type]
    if model_type not in _CLASSES:
        return None
    name = _CLASSES[model_type][0]
    try:
        module = importlib.import_module(f"transformers.models.{name}.configuration_{name}")
    except ModuleNotFoundError:
        return None
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    return next((c for c in classes if getattr(c, "model_type", "") == model_type), None)


def _mentions_experts(model_type: str) -> bool:
    folder = Path(transformers.__file__).parent / "models"
    module = configuration_auto.model_type_to_module_name(model_type)
    source = folder / module / f"modeling_{module}.py"
    return source.is_file() and re.search(r"\bexperts\b", source.read_text()) is not None


# Encoder-decoders and others that the registry knows for their norms.
OTHER_TYPES = ("t5gemma", "t5gemma2", "muse_glimmer")

# Every type whose modeling file mentions experts: an inventory that no hand keeps.
EXPERT_TYPES: tuple[str, ...] = tuple(
    name
    for name in sorted({*modeling_auto.MODEL_MAPPING_NAMES, *CAUSAL_TYPES, *_CLASSES})
    if has_type(name) and _mentions_experts(name)
)


def list_dense() -> tuple[str, ...]:
    """Types with experts that a config can make dense, of those that are there."""
    return tuple(name for name in DENSE if has_type(name))


def make_config(model_type: str, facts: dict[str, Any] | None = None) -> Any:
    """Return the tiny config of a type. facts: instead of those in FACTS."""
    cls = find_config_class(model_type)
    facts = FACTS.get(model_type, {}) if facts is None else facts
    config = cls(**_merge(_shrink(cls), facts))
    config._attn_implementation = "eager"
    return config


def _merge(facts: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Change single facts of a nested config, keep the others."""
    nested = ("text_config", "vision_config", "audio_config")
    inner = {key: _merge(facts.get(key, {}), more[key]) for key in nested if key in more}
    return {**facts, **more, **inner}


def _shrink(cls: type[PretrainedConfig]) -> dict[str, Any]:
    default = cls()
    names = {value: key for key, value in getattr(cls, "attribute_map", {}).items()}
    facts: dict[str, Any] = {}
    for key, value in default.__dict__.items():
        if isinstance(value, PretrainedConfig):
            inner = type(value)
            facts[key] = {**_shrink(inner), **FACTS.get(inner.model_type, {})}
        elif key in _SPECIAL_TOKENS and value is not None:
            facts[key] = _SPECIAL_TOKENS.index(key)
        elif not isinstance(value, (bool, list, tuple, dict)):
            size = SIZES.get(key, SIZES.get(names.get(key, "")))
            if size is not None and (value is not None or size == NUM_EXPERTS):
                facts[key] = size
    if getattr(default, "pad_token_id", None) is not None:
        facts.setdefault("pad_token_id", 0)
    return facts


def build_dense(model_type: str) -> torch.nn.Module:
    """Build the tiny model of a type with experts, on the meta device, all its layers dense."""
    return build_as(model_type, DENSE[model_type])


def build_as(model_type: str, facts: dict[str, Any]) -> torch.nn.Module:
    """Build a tiny model on the meta device. facts: instead of those in FACTS."""
    with torch.device("meta"):
        return _construct(model_type, facts)


def find_causal_classes() -> set[str]:
    """Names of all classes that say they are causal language models, in any modeling file."""
    files = (Path(transformers.__file__).parent / "models").glob("*/modeling_*.py")
    pattern = re.compile(r"^class (\w+(?:ForCausalLM|LMHeadModel))\(", re.MULTILINE)
    texts = (f.read_text() for f in files if not re.match("modeling_(tf|flax|auto)", f.name))
    return {name for text in texts for name in pattern.findall(text)}


def _construct(model_type: str, facts: dict[str, Any] | None = None) -> torch.nn.Module:
    config = make_config(model_type, facts)
    if model_type in _TEXT_ONLY:
        config = config.get_text_config()
        config._attn_implementation = "eager"
    with (
        mock.patch.object(PreTrainedModel, "_initialize_weights"),
        mock.patch.object(PreTrainedModel, "initialize_weights", create=True),
    ):
        if model_type in _CLASSES:
            module, name = _CLASSES[model_type]
            source = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
            return getattr(source, name)._from_config(config)  # type: ignore[no-any-return]
        if model_type in _TEXT_ONLY:
            name = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type]
            return getattr(transformers, name)._from_config(config)  # type: ignore[no-any-return]
        auto = AutoModelForCausalLM if model_type in CAUSAL_TYPES else AutoModel
        return auto.from_config(config, attn_implementation="eager")  # type: ignore[no-any-return]


@functools.cache
def build(model_type: str, variant: str = "{}") -> torch.nn.Module:
    """Build the tiny model of a type in float32, its weights drawn the same every time.

    variant: facts beside those in FACTS, as JSON.
    One with a part that nothing makes small (an image encoder) stays on the meta device.
    """
    facts = FACTS.get(model_type, {}) | json.loads(variant)
    if model_type not in _NEEDS_DATA:
        with torch.device("meta"):
            model = _construct(model_type, facts)
        if sum(parameter.numel() for parameter in model.parameters()) > MOST_PARAMETERS:
            return model.eval()
    torch.manual_seed(0)
    model = _construct(model_type, facts).float().eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.is_floating_point() and "inv_freq" not in name:
                tensor.copy_(0.3 * torch.randn(tensor.shape, generator=generator))
    return model
