"""inkling_text: chosen and shared experts share one normalization and a learned scale.

Shared by the model types inkling_text, inkling_mm_model.
"""

from __future__ import annotations

from assay.spec.markers import key
from assay.spec.moe import ExpertFiles, ExpertLayout, MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    fused_files,
    shared,
    sigmoid_router,
)

__all__ = ["INKLING_MOE"]


INTERLEAVED_FILES = ExpertFiles(
    gate_up=("mlp.experts.w13_weight",),
    down="mlp.experts.w2_weight",
    layout=ExpertLayout(kind="fused", is_concatenated=False),
    renames=(("mlp.gate.e_score_correction_bias", "mlp.gate.bias"),),
)


INKLING_MOE = MoESpec(
    block_names=("InklingMoE",),
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ONLY_FUSED,
    router=sigmoid_router(
        groups=None,
        normalize="sum_with_shared",
        normalize_eps=0.0,
        scale=key("route_scale"),
        scale_name="gate.global_scale",
    ),
    experts=experts("n_routed_experts"),
    files=(
        INTERLEAVED_FILES,
        fused_files(),
    ),
    shared=shared(
        "shared_experts", "moe_intermediate_size", combine="weighted", count=key("n_shared_experts")
    ),
    sparse_layers=SparseLayers(types_key="mlp_layer_types"),
)
