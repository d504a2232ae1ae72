"""ernie4_5_vl_moe_text: one block for text tokens, one for vision tokens, ernie4_5_moe's router.

Shared by the model types ernie4_5_vl_moe_text, ernie4_5_vl_moe.
"""

from __future__ import annotations

from assay.spec.experts import Experts
from assay.spec.markers import key, rule
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    fused_files,
    per_expert_files,
    softmax_router,
)
from assay.spec.resolve import Context

__all__ = ["ERNIE4_5_VL_MOE_MOE"]


def _width(context: Context) -> int:
    """The text experts' width."""
    return int(context.config.get("moe_intermediate_size")[0])


def _vision_width(context: Context) -> int:
    """The vision experts' width, which is the second of the pair."""
    return int(context.config.get("moe_intermediate_size")[1])


ERNIE4_5_VL_MOE_MOE = MoESpec(
    block_names=("Ernie4_5_VLMoeSparseMoeBlock",),
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ONLY_FUSED,
    router=softmax_router(
        top_k=key("moe_k"),
        choice_bias="gate.moe_statics.e_score_correction_bias",
        normalize="sum_at_least",
        normalize_eps=key("moe_norm_min"),
        math="float32",
    ),
    experts=Experts(count=key("moe_num_experts"), width=rule(_width), activation=key("hidden_act")),
    second_experts=Experts(
        count=key("moe_num_experts"), width=rule(_vision_width), activation=key("hidden_act")
    ),
    files=(
        fused_files("mlp.text_moe", second=fused_files("mlp.vision_moe")),
        # One bias, router and list of experts for both kinds of tokens, text's first.
        per_expert_files(
            renames=(
                ("mlp.text_moe.gate.moe_statics", "mlp.moe_statics"),
                ("mlp.text_moe.gate", "mlp.gate"),
                ("mlp.vision_moe.gate.moe_statics", "mlp.moe_statics"),
                ("mlp.vision_moe.gate", "mlp.gate"),
            ),
        ),
    ),
    sparse_layers=SparseLayers(types_key="mlp_layer_types", first_dense=1),
)
