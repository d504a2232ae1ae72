"""minimax_m3_vl_text: sigmoids, a bias for the choice; clamped experts with up + 1.

Shared by the model types minimax_m3_vl_text, minimax_m3_vl.
"""

from __future__ import annotations

from assay.spec.experts import Glu
from assay.spec.markers import key
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    MIXTRAL_NAMES,
    ONLY_FUSED,
    experts,
    fused_files,
    per_expert_files,
    shared,
    sigmoid_router,
)

__all__ = ["MINIMAX_M3_VL_MOE"]


CLAMPED = Glu(
    activation="silu",
    alpha=key("swiglu_alpha"),
    gate_limit=key("swiglu_limit"),
    up_limit=key("swiglu_limit"),
    up_shift=1.0,
)


MINIMAX_M3_VL_MOE = MoESpec(
    block_names=("MiniMaxM3VLSparseMoeBlock",),
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ONLY_FUSED,
    router=sigmoid_router(
        scale_on="sum", groups=None, normalize="sum", normalize_eps=0.0, math="scores"
    ),
    experts=experts("num_local_experts", "intermediate_size", activation=CLAMPED),
    files=(
        per_expert_files(
            "block_sparse_moe",
            MIXTRAL_NAMES,
            module="mlp",
            renames=(
                ("mlp.gate.e_score_correction_bias", "block_sparse_moe.e_score_correction_bias"),
            ),
        ),
        fused_files(),
    ),
    shared=shared("shared_experts", "shared_intermediate_size", packed=True),
    sparse_layers=SparseLayers(types_key="mlp_layer_types"),
)
