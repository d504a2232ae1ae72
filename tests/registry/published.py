"""Hand-made lists of expert tensors as the hub has them: names, dtypes, shapes, and the config."""

from __future__ import annotations

import functools
from typing import Any

__all__ = ["PUBLISHED", "QUANTIZED", "E", "H", "I", "L", "Stored", "find_projection", "quantize"]

Stored = dict[str, tuple[str, tuple[int, ...]]]  # name -> dtype, shape
_LLAMA = ("gate_proj", "up_proj", "down_proj")
H, I, E, L = 64, 352, 4, 2  # noqa: E741
_SIZES = {"hidden_size": H, "num_hidden_layers": L, "intermediate_size": I}


def _each(place: str, gate: str, up: str, down: str, first: int = 0) -> Stored:
    """One tensor an expert and projection. place: from the stack on, with a `{}` for the layer."""
    return {
        f"{place.format(layer)}.{expert}.{name}.weight": (
            "BF16",
            (H, I) if name == down else (I, H),
        )
        for layer in range(first, L)
        for expert in range(E)
        for name in (gate, up, down)
    }


def _two_sets() -> Stored:
    """Experts for text, then half as wide ones for images, in one list."""
    found: Stored = {}
    for layer in range(1, L):
        for expert in range(2 * E):
            width = I if expert < E else I // 2
            for name in _LLAMA:
                shape = (H, width) if name == "down_proj" else (width, H)
                found[f"model.layers.{layer}.mlp.experts.{expert}.{name}.weight"] = "BF16", shape
    return found


def _stacked(place: str, gate_up: str, down: str, *, turned: bool = False) -> Stored:
    up, back = ((E, H, 2 * I), (E, I, H)) if turned else ((E, 2 * I, H), (E, H, I))
    return {
        f"{place.format(layer)}.{name}": ("BF16", shape)
        for layer in range(L)
        for name, shape in ((gate_up, up), (down, back))
    }


def _gpt_oss(*, packed: bool) -> Stored:
    found: Stored = {}
    for layer in range(L):
        for name, out, inputs in (("gate_up_proj", 2 * I, H), ("down_proj", H, I)):
            stem = f"model.layers.{layer}.mlp.experts.{name}"
            found[f"{stem}_bias"] = "BF16", (E, out)
            if packed:
                found[f"{stem}_blocks"] = "U8", (E, out, inputs // 32, 16)
                found[f"{stem}_scales"] = "U8", (E, out, inputs // 32)
            else:
                found[stem] = "BF16", (E, inputs, out)
    return found


_DENSE_FIRST = {
    **_SIZES,
    "n_routed_experts": E,
    "moe_intermediate_size": I,
    "first_k_dense_replace": 1,
}
_ROUTED = {**_SIZES, "n_routed_experts": E, "moe_intermediate_size": I}
_OF_QWEN = {**_SIZES, "num_experts": E, "moe_intermediate_size": I, "decoder_sparse_step": 1}
_LOCAL = {**_SIZES, "num_local_experts": E}
_LLAMA4 = {"text_config": {**_LOCAL, "model_type": "llama4_text"}}
_LLAMA4_PLACE = "language_model.model.layers.{}.feed_forward.experts"

# The last part of a published name -> the projection that it is; any other is down.
PROJECTIONS = {
    **dict.fromkeys(("gate", "gate_proj", "w1"), "gate"),
    **dict.fromkeys(("up", "up_proj", "v1", "w3"), "up"),
    **dict.fromkeys(("gate_up_proj", "input_linear", "w13_weight"), "gate_up"),
}


def find_projection(tensor: str) -> str:
    """The projection that a published name says."""
    parts = tensor.split(".")
    last = parts[-2] if parts[-1] == "weight" else parts[-1]
    for part in ("_bias", "_blocks", "_scales"):
        last = last.removesuffix(part)
    return PROJECTIONS.get(last, "down")


# Name, of which the first word is the model type -> config, tensors.
PUBLISHED: dict[str, tuple[dict[str, Any], Stored]] = {
    "mixtral": (_LOCAL, _each("model.layers.{}.block_sparse_moe.experts", "w1", "w3", "w2")),
    "mixtral, as transformers 5 holds it": (
        _LOCAL,
        _stacked("model.layers.{}.mlp.experts", "gate_up_proj", "down_proj"),
    ),
    "qwen3_moe": (_OF_QWEN, _each("model.layers.{}.mlp.experts", *_LLAMA)),
    "deepseek_v3": (_DENSE_FIRST, _each("model.layers.{}.mlp.experts", *_LLAMA, first=1)),
    "deepseek_v4": (_DENSE_FIRST, _each("layers.{}.ffn.experts", "w1", "w3", "w2")),
    "gpt_oss": (_LOCAL, _gpt_oss(packed=False)),
    "gpt_oss, MXFP4": (_LOCAL, _gpt_oss(packed=True)),
    "dbrx": (
        {"d_model": H, "n_layers": L, "ffn_config": {"ffn_hidden_size": I, "moe_num_experts": E}},
        {
            f"transformer.blocks.{layer}.ffn.experts.mlp.{name}": ("BF16", (E * I, H))
            for layer in range(L)
            for name in ("w1", "v1", "w2")
        },
    ),
    "granitemoe": (
        _LOCAL,
        _stacked("model.layers.{}.block_sparse_moe", "input_linear.weight", "output_linear.weight"),
    ),
    "jetmoe": (
        _LOCAL,
        _stacked("model.layers.{}.mlp", "input_linear.weight", "output_linear.weight"),
    ),
    "phimoe": (_LOCAL, _each("model.layers.{}.block_sparse_moe.experts", "w1", "w3", "w2")),
    "ernie4_5_vl_moe": (
        {
            "text_config": {
                **_SIZES,
                "model_type": "ernie4_5_vl_moe_text",
                "moe_num_experts": E,
                "moe_intermediate_size": [I, I // 2],
            }
        },
        _two_sets(),
    ),
    "qwen3_vl_moe": (
        {"text_config": {**_OF_QWEN, "model_type": "qwen3_vl_moe_text"}},
        _stacked(
            "model.language_model.layers.{}.mlp.experts", "gate_up_proj", "down_proj", turned=True
        ),
    ),
    "llama4": (_LLAMA4, _stacked(_LLAMA4_PLACE, "gate_up_proj", "down_proj", turned=True)),
    "llama4, quantized elsewhere": (_LLAMA4, _each(_LLAMA4_PLACE, *_LLAMA)),
    "deepseek_ocr2_text": (_ROUTED, _each("model.layers.{}.mlp.experts", *_LLAMA)),
    "glm4v_moe_text": (
        {**_ROUTED, "first_k_dense_replace": 0},
        _each("model.language_model.layers.{}.mlp.experts", *_LLAMA),
    ),
    "mistral4": (
        {**_ROUTED, "first_k_dense_replace": 0},
        _each("model.layers.{}.mlp.experts", *_LLAMA),
    ),
    "qwen3_omni_moe_talker_text": (
        {**_SIZES, "num_experts": E, "moe_intermediate_size": I},
        _each("talker.model.layers.{}.mlp.experts", *_LLAMA),
    ),
    "minimax_m3_vl_text": (
        {**_LOCAL, "mlp_layer_types": ["sparse"] * L},
        _each("language_model.model.layers.{}.block_sparse_moe.experts", "w1", "w3", "w2"),
    ),
    "inkling_text": (
        {**_ROUTED, "mlp_layer_types": ["sparse"] * L},
        _stacked("model.llm.layers.{}.mlp.experts", "w13_weight", "w2_weight"),
    ),
    "step3p5": (
        {
            **_SIZES,
            "moe_num_experts": E,
            "moe_intermediate_size": I,
            "mlp_layer_types": ["sparse"] * L,
        },
        {
            f"model.layers.{layer}.moe.{name}.weight": ("BF16", shape)
            for layer in range(L)
            for name, shape in (
                ("gate_proj", (E, I, H)),
                ("up_proj", (E, I, H)),
                ("down_proj", (E, H, I)),
            )
        },
    ),
}


def _gptq(bits: int, out: int, inputs: int) -> Stored:
    return {
        "qweight": ("I32", (inputs * bits // 32, out)),
        "qzeros": ("I32", (1, out * bits // 32)),
        "scales": ("F16", (1, out)),
    }


def _pack_rows(bits: int, out: int, inputs: int) -> Stored:
    return {
        "weight_packed": ("I32", (out, inputs * bits // 32)),
        "weight_scale": ("BF16", (out, 1)),
        "weight_zero_point": ("I32", (1, 1)),
    }


# Format -> the parts of one expert's weight [out, in].
QUANTIZED: dict[str, Any] = {
    "compressed-tensors int4": lambda out, inputs: {
        "weight_packed": ("I32", (out, inputs // 8)),
        "weight_scale": ("BF16", (out, inputs // 32)),
        "weight_shape": ("I64", (2,)),
    },
    "compressed-tensors NVFP4": lambda out, inputs: {
        "weight_packed": ("U8", (out, inputs // 2)),
        "weight_scale": ("F8_E4M3", (out, inputs // 16)),
        "weight_global_scale": ("F32", (1,)),
        "input_global_scale": ("F32", (1,)),
    },
    "compressed-tensors FP8": lambda out, inputs: {
        "weight": ("F8_E4M3", (out, inputs)),
        "weight_scale": ("BF16", (out, 1)),
    },
    "FP8 in blocks": lambda out, inputs: {
        "weight": ("F8_E4M3", (out, inputs)),
        "weight_scale_inv": ("F32", (-(-out // 128), -(-inputs // 128))),
    },
    "modelopt NVFP4": lambda out, inputs: {
        "weight": ("U8", (out, inputs // 2)),
        "weight_scale": ("F8_E4M3", (out, inputs // 16)),
        "weight_scale_2": ("F32", ()),
        "input_scale": ("F32", ()),
    },
    "modelopt W4A16 AWQ": lambda out, inputs: {
        "weight": ("U8", (out // 2, inputs)),
        "weight_scale": ("F32", (out, 1)),
        "pre_quant_scale": ("BF16", (inputs,)),
    },
    "FP4 as DeepSeek has it": lambda out, inputs: {
        "weight": ("I8", (out, inputs // 2)),
        "scale": ("F8_E8M0", (out, inputs // 32)),
    },
    "GPTQ": lambda out, inputs: {
        "qweight": ("I32", (inputs // 8, out)),
        "qzeros": ("I32", (1, out // 8)),
        "scales": ("F16", (1, out)),
        "g_idx": ("I32", (inputs,)),
    },
    **{f"GPTQ, {bits} bits": functools.partial(_gptq, bits) for bits in (2, 3, 8)},
    **{f"compressed-tensors int{bits}": functools.partial(_pack_rows, bits) for bits in (2, 3, 8)},
    "AWQ": lambda out, inputs: {
        "qweight": ("I32", (inputs, out // 8)),
        "qzeros": ("I32", (1, out // 8)),
        "scales": ("F16", (1, out)),
    },
    "bitsandbytes": lambda out, inputs: {
        "weight": ("U8", (out * inputs // 2, 1)),
        "weight.absmax": ("U8", (out * inputs // 64,)),
        "weight.quant_map": ("F32", (16,)),
        "weight.quant_state.bitsandbytes__nf4": ("U8", (86,)),
    },
}


def quantize(stored: Stored, scheme: str) -> Stored:
    """The same list with every expert's weight as a format stores it."""
    found: Stored = {}
    for name, (_, (out, inputs)) in stored.items():
        stem = name.removesuffix("weight")
        found |= {f"{stem}{part}": kept for part, kept in QUANTIZED[scheme](out, inputs).items()}
    return found
