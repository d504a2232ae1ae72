"""mistral_large4_text: float32 softmax, groups, always normalized.

Shared by the model types mistral_large4_text, mistral_large4.
"""

from __future__ import annotations

from assay.spec.experts import RouterGroups
from assay.spec.markers import key
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    MIXTRAL_NAMES,
    ONLY_FUSED,
    W_SHARED,
    experts,
    fused_files,
    per_expert_files,
    shared,
    softmax_router,
    times,
)

__all__ = ["MISTRAL_LARGE4_MOE"]


MISTRAL_LARGE4_MOE = MoESpec(
    block_names=("MistralLarge4TextMoE",),
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ONLY_FUSED,
    router=softmax_router(
        groups=RouterGroups(count=key("n_group"), keep=key("topk_group")),
        normalize="sum",
        normalize_eps=1e-20,
        scale=key("routed_scaling_factor"),
        math="float32",
    ),
    experts=experts("n_routed_experts"),
    files=(
        per_expert_files("", MIXTRAL_NAMES, renames=(("mlp.gate", "gate"), *W_SHARED)),
        fused_files(),
    ),
    shared=shared("shared_experts", times("moe_intermediate_size", "n_shared_experts")),
    sparse_layers=SparseLayers(
        types_key="mlp_layer_types", first_dense_key="first_k_dense_replace"
    ),
)
